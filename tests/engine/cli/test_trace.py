"""trace on devices on paper: a prediction that nobody takes for a measurement."""

import json

import pytest

from tests.engine.nano import nano, nano_with

CARD = "{}:gpu:8192:preset=cuda"
PAPER = ("--virtual", CARD.format("A"), "--virtual", CARD.format("B"), "-c", 256)


def trace(cli, tmp_path, *words, out="t.json", model=None):
    return cli("trace", model or nano(), *PAPER, *words, "-o", tmp_path / out)


def test_people_see_speeds_loads_and_the_pipeline_and_that_all_is_predicted(cli, tmp_path):
    done = trace(cli, tmp_path, "--n-prompt", 100, "-n", 4, "-ub", 32)

    lines = done.out.splitlines()
    assert lines[0] == "Predicted, not measured: the devices exist on paper only."
    assert lines[1].startswith("prompt 100 tokens in ")
    assert "generation 4 tokens, " in lines[1]
    assert lines[3].split("  ")[0] == "device"
    assert [line.split()[0] for line in lines[4:7]] == ["A", "B", "CPU"]
    assert lines[8].split()[:2] == ["from", "to"]
    assert lines[-3].startswith("overlap: at least two devices computed for ")
    assert lines[-2] == "pipeline on: up to 4 prompt graphs at once (--n-copies)"
    assert lines[-1] == f"Predicted trace in {tmp_path / 't.json'}"
    assert (done.code, done.err) == (0, "")


def test_programs_see_the_same(cli, tmp_path):
    done = trace(cli, tmp_path, "--n-prompt", 100, "-n", 4, "-ub", 32, "--json")

    data = done.json
    assert data["predicted"] is True
    together = data["together"]
    assert [device["name"] for device in together["devices"]] == ["A", "B", "CPU"]
    assert all(device["busy_ns"] > 0 for device in together["devices"])
    assert (data["n_prompt_tokens"], data["n_tokens"]) == (100, 4)
    assert (together["n_copies"], together["pipeline_obstacle"]) == (4, "")
    assert together["n_steps"] == together["n_run_steps"] == 4 + 3
    assert data["predicted_tokens_per_s"] > 0
    assert data["predicted_prompt_tokens_per_s"] > 0
    assert done.err == f"Predicted trace in {tmp_path / 't.json'}\n"


def test_one_device_has_its_idle_time_too(cli, tmp_path):
    words = ("--virtual", CARD.format("A"), "-c", 256, "--n-prompt", 40, "-o", tmp_path / "t.json")

    lines = cli("trace", nano(), *words).out.splitlines()

    assert "idle: copy ms" in lines[3]
    assert [line.split()[0] for line in lines[4:6]] == ["A", "CPU"]
    assert "pipeline off: the model uses fewer than two devices" in lines


def test_a_text_counts_as_its_tokens(cli, tmp_path):
    data = trace(cli, tmp_path, "-p", "Hello world", "-n", 1, "--json").json

    assert data["n_prompt_tokens"] == 7


def test_why_devices_do_not_work_as_a_pipeline_is_said(cli, tmp_path):
    done = trace(cli, tmp_path, "--n-prompt", 10, "-ngl", 1)

    assert "pipeline off: not every layer is on a device (-ngl)" in done.out


def test_the_trace_says_predicted_wherever_one_looks(cli, tmp_path):
    trace(cli, tmp_path, "--n-prompt", 40, "-n", 2)

    written = json.loads((tmp_path / "t.json").read_text())
    named = [event for event in written["traceEvents"] if event["name"] == "process_name"]
    marks = [event["name"] for event in written["traceEvents"] if event["ph"] == "i"]
    assert [event["args"]["name"] for event in named] == [
        "Splitscope (predicted)", "A (predicted)", "B (predicted)", "CPU (predicted)",
    ]  # fmt: skip
    assert marks == ["predicted, not measured: A, B, CPU exist on paper only"]
    assert written["metadata"]["clock"] == "virtual, ns: predicted, not measured"
    assert "predicted" in written["metadata"]["about Splitscope (predicted)"]
    command = written["metadata"]["command"]
    assert f" --n-prompt 40 -n 2 --virtual {CARD.format('A')}" in command
    assert f"--virtual {CARD.format('B')}" in command


def test_perfettos_form_says_so_too(cli, tmp_path):
    trace(cli, tmp_path, "--n-prompt", 40, "-n", 2, out="t.pftrace")

    written = (tmp_path / "t.pftrace").read_bytes()
    assert b"A (predicted)" in written
    assert b"predicted, not measured: A, B, CPU exist on paper only" in written
    assert b"a virtual clock" in written


def test_a_header_without_data_is_predicted(cli, tmp_path):
    done = trace(cli, tmp_path, "--n-prompt", 40, model=nano_with(tmp_path, whole=False))

    assert done.code == 0


def test_what_does_not_fit_is_said_and_predicted_all_the_same(cli, tmp_path):
    words = ("--virtual", "A:gpu:1", "--n-prompt", 10, "-o", tmp_path / "t.json")

    done = cli("trace", nano(), *words)

    assert done.err.startswith("Does not fit: A needs ")
    assert done.out.startswith("Predicted, not measured")


@pytest.mark.parametrize("words", [("-p", "a"), ("--n-prompt", 1)])
def test_a_real_run_takes_a_text_and_no_number(cli, tmp_path, words):
    done = cli("trace", nano(), *words, "-n", 0, "-o", tmp_path / "t.json", "-dev", "none")

    assert done.code == (0 if words[0] == "-p" else 1)
    assert ("--n-prompt goes with --virtual." in done.err) is (words[0] != "-p")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--n-prompt", "0"), "--n-prompt cannot be 0. It must be a number of tokens from 1 to"),
        (("--n-prompt", "many"), "--n-prompt cannot be many."),
        (("--n-prompt", "300"), "The prompt is too long: 300 tokens."),
        (("--n-prompt", "3", "-p", "a"), "-p not allowed with argument --n-prompt."),
        ((), "One of the arguments -p/--prompt --n-prompt is required"),
        (("-p", " "), "The prompt is empty."),
    ],
)
def test_what_cannot_be_predicted_is_refused_and_writes_nothing(cli, tmp_path, words, said):
    done = trace(cli, tmp_path, *words)

    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not (tmp_path / "t.json").exists()


def test_the_ending_decides_the_form_in_capitals_too(cli, tmp_path):
    trace(cli, tmp_path, "--n-prompt", 4, "-n", 1, out="t.JSON")

    assert json.loads((tmp_path / "t.JSON").read_text())["traceEvents"]


def test_a_link_that_is_named_stays(cli, tmp_path):
    (tmp_path / "t.json").symlink_to("far.json")

    trace(cli, tmp_path, "--n-prompt", 4, "-n", 1)

    assert (tmp_path / "t.json").is_symlink()
    assert json.loads((tmp_path / "far.json").read_text())["traceEvents"]


def test_a_folder_in_place_of_the_file_is_named_before_anything_runs(cli, tmp_path):
    done = cli("trace", nano(), *PAPER, "--n-prompt", 4, "-o", tmp_path)

    assert done.code == 1
    assert f"There is a folder of that name: {tmp_path}\n" in done.err
    assert f"[Errno 21] Is a directory: '{tmp_path}'" in done.err
