"""run, score and trace on a real small model."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.engine.nano import nano, nano_with
from tests.oracle import golden

PROMPT = "Hello world"
FIRST_TOKENS = [745, 270, 132]
BARE = dict.fromkeys(
    ("tokenizer__ggml__scores", "tokenizer__ggml__token_type", "tokenizer__ggml__merges"), None
)
GREEDY = ("--devices", "cpu", "-c", 256, "--temp", 0)


def test_run_gives_tokens_text_splits_copies_and_speeds(cli):
    run = cli("run", nano(), "--prompt", PROMPT, "-n", 3, *GREEDY, "--json").json

    assert run["tokens"] == FIRST_TOKENS
    assert len(run["prompt_tokens"]) == 7
    assert run["prefill_tokens_per_s"] > 0
    assert run["decode_tokens_per_s"] > 0
    assert run["copies"] == []
    for split in run["splits"]:
        assert {"id", "backend", "start", "stop", "n_nodes", "time_ns"} <= set(split)
        assert split["n_nodes"] == split["stop"] - split["start"]
    assert [len(split["time_ns"]) for split in run["splits"]] == [1, 2]


@pytest.fixture
def opencl_device(cli):
    """Return the name of this machine's first OpenCL device."""
    found = cli("devices", "--json").json
    names = [device["name"] for device in found["devices"] if device["name"].startswith("OpenCL")]
    if not names:
        pytest.skip(f"OpenCL: no device ({found['unavailable']})")
    return names[0]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("devices", ["opencl", "{}"])
def test_copies_have_bytes_and_times(cli, opencl_device, devices):
    options = ("-ngl", 2, "-c", 256, "--temp", 0, "--devices", devices.format(opencl_device))

    run = cli("run", nano(), "-p", PROMPT, "-n", 2, *options, "--json").json

    assert {split["backend"] for split in run["splits"]} == {opencl_device, "CPU"}
    assert run["copies"]
    assert all(copy["bytes"] > 0 and len(copy["time_ns"]) == 1 for copy in run["copies"])


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.big_set
def test_used_experts_alone_are_copied_and_the_trace_adds_up_to_the_same(
    cli, opencl_device, monkeypatch, tmp_path
):
    """Each of 4 layers has 3 weights of 8 experts in host memory, of which a token uses 2."""
    monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", "1")
    trace = tmp_path / "t.json"
    options = ("-ngl", 0, "-c", 256, "--temp", 0, "--devices", opencl_device, "--trace", trace)
    model = golden.model("tiny-qwen3moe-q8_0")

    run = cli("run", model, "-p", PROMPT, "-n", 3, *options, "--json").json

    use = run["token_experts"]
    assert (use["n_steps"], use["n_copies"]) == (2, 2 * 4 * 3)
    assert (use["n_used"], use["n_experts"]) == (2 * use["n_copies"], 8 * use["n_copies"])
    assert use["whole_bytes"] / 4.5 < use["copied_bytes"] < use["whole_bytes"] / 3.5
    assert use["estimated_all_ns"] > use["copy_ns"] > 0
    slices = [e["args"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    pieces = [args for args in slices if "experts" in args]
    copies = [copy for copy in run["copies"] if copy["n_experts"]]
    assert sum(args["bytes"] for args in pieces) == sum(sum(c["copied_bytes"]) for c in copies)
    assert {args["of experts"] for args in pieces} == {8}


def test_people_see_the_prompt_the_text_and_the_sums(cli):
    out = cli("run", nano(), "-p", PROMPT, "-n", 3, *GREEDY).out

    assert out.startswith(PROMPT)
    assert "generation 3 tokens" in out
    assert "ended: length" in out


def test_no_tokens_print_the_prompt_and_one_token_has_no_speed(cli):
    none = cli("run", nano(), "-p", PROMPT, "-n", 0, *GREEDY).out
    one = cli("run", nano(), "-p", PROMPT, "-n", 1, *GREEDY).out

    assert none.startswith(f"{PROMPT}\n")
    assert "generation 1 token · ended" in one
    assert "prompt: 1 split, 0 copies" in one


def test_a_chat_answer_stands_on_a_line_of_its_own(cli):
    out = cli("run", nano(), "-p", PROMPT, "-n", 2, "--chat", *GREEDY).out

    assert out.startswith(f"{PROMPT}\n")
    assert cli("run", nano(), "-p", PROMPT, "-n", 2, *GREEDY).out.startswith(PROMPT)


def test_a_chat_without_a_template_is_plain_text_and_says_so(cli):
    done = cli("run", nano(), "-p", PROMPT, "-n", 2, "--chat", *GREEDY)

    assert "The prompt is used as plain text instead." in done.err
    assert cli("run", nano(), "-p", PROMPT, "-n", 2, *GREEDY).err == ""


@pytest.mark.parametrize("prompt", ["", "  "])
def test_a_blank_prompt_is_refused_as_one(cli, prompt):
    done = cli("run", nano(), "-p", prompt, *GREEDY)

    assert done.code == 1
    assert done.err.startswith("The prompt is empty.")


def test_a_text_that_no_token_is_part_of_is_not_called_empty(cli, tmp_path):
    strange = {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "default",
        "tokenizer__ggml__tokens": [f"<{i}>" for i in range(1024)],
        "tokenizer__ggml__merges": ["a b"],
        "tokenizer__ggml__add_bos_token": False,
    }

    done = cli("run", nano_with(tmp_path, **(BARE | strange)), "-p", "hello", *GREEDY)

    assert done.code == 1
    assert done.err.splitlines()[:2] == [
        "The model's vocabulary has no tokens for this text.",
        "Nothing in it is among the file's 1,024 tokens (tokenizer.ggml.tokens).",
    ]


def test_a_note_stands_after_the_text_on_a_line_of_its_own(tmp_path):
    """Both streams of a terminal are one."""
    path = nano_with(tmp_path, tokenizer__ggml__pre="bogus", tokenizer__ggml__model="gpt2")
    words = ("run", path, "-p", PROMPT, "-n", "2", *map(str, GREEDY))

    done = subprocess.run(
        [sys.executable, "-m", "engine", *words], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=True, timeout=100,
    )  # fmt: skip

    lines = done.stdout.splitlines()
    assert any(line.startswith('Its pre-tokenizer is "bogus"') for line in lines)


def test_what_does_not_fit_is_said_before_it_is_loaded_and_tried(cli, monkeypatch):
    monkeypatch.setattr("engine.cli.plan_words.is_over", lambda plans, device: True)

    done = cli("run", nano(), "-p", PROMPT, "-n", 2, *GREEDY)

    assert done.code == 0
    assert done.err.startswith("Does not fit: CPU needs ")
    assert "generation 2 tokens" in done.out


def test_minus_one_runs_until_the_context_is_full(cli):
    run = cli("run", nano(), "-p", PROMPT, "-n", -1, *GREEDY, "--json").json

    assert run["stop_reason"] == "context full"


def test_a_trace_is_written_in_the_form_its_name_asks_for(cli, tmp_path):
    chrome, perfetto = tmp_path / "t.json", tmp_path / "t.pftrace"

    beside = cli("run", nano(), "-p", PROMPT, "-n", 2, *GREEDY, "--trace", chrome, "--json")
    done = cli("trace", nano(), "-p", PROMPT, "-n", 2, *GREEDY, "-o", perfetto)

    assert "traceEvents" in json.loads(chrome.read_text())
    assert perfetto.stat().st_size > 0
    assert done.out.endswith(f"Trace in {perfetto}\n")
    assert f"Trace in {chrome}" in beside.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--trace", "{}/nowhere/t.json"),
        ("run", "--trace", "{}"),
        ("run", "--trace", os.devnull),
        ("trace", "-o", "{}/nowhere/t.json"),
        ("score", "--tokens", "1", "--logits", "{}/nowhere/l.npy"),
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_written_is_said_before_the_model_is_opened(cli, tmp_path, words):
    command, *options = (word.format(tmp_path) for word in words)

    done = cli(command, "/no/such/model.gguf", "-p", PROMPT, *options)

    assert done.code == 1
    assert done.err.startswith("Cannot write")


def test_score_compares_our_choice_with_the_given_tokens(cli, tmp_path):
    file = tmp_path / "logits.npy"

    tokens = ",".join(map(str, FIRST_TOKENS))
    result = cli(
        "score", nano(), "-p", PROMPT, "--tokens", tokens, *GREEDY, "--logits", file, "--json"
    ).json

    logits = np.load(file)
    assert [step["argmax"] for step in result["steps"]] == FIRST_TOKENS
    assert [step["gap"] for step in result["steps"]] == [0, 0, 0]
    assert len(result["prompt_tokens"]) == 7
    assert (logits.shape, logits.dtype) == ((3, 1024), np.float32)
    assert logits.argmax(axis=1).tolist() == FIRST_TOKENS


def test_score_prints_a_table_for_people(cli):
    out = cli("score", nano(), "-p", PROMPT, "--tokens", "745,5", *GREEDY).out

    assert out.splitlines()[0].split() == ["step", "token", "argmax", "gap"]
    assert out.splitlines()[1].split() == ["0", "745", "745", "0.0000"]


def test_a_run_of_a_header_without_data_is_refused(cli, tmp_path):
    done = cli("run", nano_with(tmp_path, whole=False), "-p", PROMPT, *GREEDY, "--json")

    assert done.code == 1
    assert done.json["error"]["title"].endswith("It can be planned, not run.")


def test_a_run_on_devices_on_paper_is_refused(cli):
    done = cli("run", nano(), "-p", PROMPT, "--virtual", "A:gpu:100")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Devices on paper cannot run a model.")


def test_a_run_whose_plan_has_a_gpu_on_paper_says_so(cli, monkeypatch):
    import engine.backends

    only_cpu = tuple(item for item in engine.backends.BUILTIN if item.name == "CPU")
    monkeypatch.setattr(engine.backends, "BUILTIN", only_cpu)
    monkeypatch.setattr("engine.planning.fetch_demo", lambda *args: nano())

    done = cli("run", "demo", "-p", PROMPT, "-n", 1, "-ngl", 2, "-c", 256, "--temp", 0, "--json")

    note = "GPU0 exists on paper only: this run uses CPU"
    assert (done.code, done.err) == (0, f"{note}.\n")
    assert done.json["note"] == note


def test_fetch_says_where_the_demo_model_is(cli, monkeypatch, tmp_path):
    model = tmp_path / "demo.gguf"
    model.write_bytes(b"12345")
    monkeypatch.setattr("engine.cli.fetch.fetch_known", lambda name, tell: model)

    said = {"path": str(model), "bytes": 5, "licence": "Apache-2.0"}
    assert cli("fetch", "demo", "--json").json == said
    assert cli("fetch", "demo").out == f"{model}\n"


def test_fetch_says_the_licence_first(cli, monkeypatch, tmp_path):
    (tmp_path / "g.gguf").write_bytes(b"12345")
    monkeypatch.setattr("engine.cli.fetch.fetch_known", lambda name, tell: tmp_path / "g.gguf")

    said = cli("fetch", "gemma").err

    assert said.startswith("Gemma 3 270M, 241.39 MiB. Licence: Gemma Terms of Use, https://")


def test_fetch_refuses_a_model_it_does_not_know(cli):
    assert "choose from demo, gemma, qwen" in cli("fetch", "llama").err.replace("'", "")


def test_devices_lists_those_on_paper_too(cli):
    found = cli("devices", "--virtual", "A:igpu:100", "--json").json

    assert [(d["name"], d["type"], d["virtual"]) for d in found["devices"]] == [
        ("A", "IGPU", True), ("CPU", "CPU", True),
    ]  # fmt: skip
    assert "a GPU on paper" in cli("devices", "--virtual", "A:igpu:100").out
