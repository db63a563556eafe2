"""ops: a line an operation and type, every fault in full, and an exit code."""

import os
import signal
import subprocess
import sys

import pytest

from engine import paths
from tests.engine.nano import nano

TEMPLATE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"
CPU = ("--backends", "cpu")


@pytest.fixture
def broken(tmp_path):
    """A plug-in whose ADD is not one."""
    text = TEMPLATE.read_text()
    assert text.count("Op.ADD: np.add") == 1
    path = tmp_path / "splitscope_backend_broken.py"
    path.write_text(text.replace("Op.ADD: np.add", "Op.ADD: np.subtract"))
    return path


def test_an_operation_has_a_line_a_type(cli):
    done = cli("ops", *CPU, "--op", "set_rows")

    lines = [line.split() for line in done.out.splitlines() if line.startswith("SET_ROWS")]
    assert done.code == 0
    assert [line[1] for line in lines] == [
        "f32", "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16",
    ]  # fmt: skip
    assert all(line[2].split("/")[0] == line[2].split("/")[1] for line in lines)
    assert done.out.rstrip().endswith("cases computed and right.")


def test_a_wrong_case_is_told_in_full_and_ends_with_1(cli, broken):
    done = cli(
        "ops", *CPU, "--load", broken, "--backend", "slow", "--op", "ADD", "--type", "f32",
    )  # fmt: skip

    assert done.code == 1
    assert "ADD f32: f32 [64, 5, 6, 2], f32 [64]; the second repeats" in done.out
    assert "wrong: error" in done.out
    assert "allowed is 1e-07; farthest off at" in done.out


def test_json_has_every_case_on_every_device(cli):
    done = cli("ops", *CPU, "--load", TEMPLATE, "--op", "ROPE", "--json")

    matrix = done.json
    states = {tuple(v["state"] for v in row["verdicts"]) for row in matrix["rows"]}
    assert matrix["devices"] == ["Slow", "CPU"]
    assert states == {("not supported", "ok")}
    assert done.code == 0


def test_the_operations_of_a_model_are_counted_and_timed(cli):
    done = cli("ops", "-m", nano(), *CPU, "--op", "MUL_MAT", "--perf", "-c", 256, "--json")

    rows = done.json["rows"]
    assert done.code == 0
    assert sum(row["n_token"] for row in rows) == 3 * 7 + 1
    assert sum(row["n_prompt"] for row in rows) == 3 * 7 + 1
    assert all(row["verdicts"][0]["speed"]["median_ns"] > 0 for row in rows)


def test_single_cases_are_listed_where_they_are_timed(cli):
    done = cli("ops", *CPU, "--op", "SCALE", "--perf")

    assert "median us" in done.out
    assert "f32 [33, 7]; scale 0.125" in done.out


def test_options_that_shape_the_graph_shape_the_cases(cli):
    with_flash = cli("ops", nano(), *CPU, "-c", 256, "--json", "--op", "FLASH_ATTN_EXT")
    without = cli("ops", nano(), *CPU, "-c", 256, "-fa", "off", "--op", "FLASH_ATTN_EXT")

    assert with_flash.code == 0
    assert without.code == 1
    assert without.err.startswith("There is no case of FLASH_ATTN_EXT.")


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("--op", "MULMAT"), "There is no operation MULMAT. Did you mean MUL_MAT?"),
        (("--type", "q9"), "There is no type q9."),
        (("--backend", "GPU7"), "There is no device GPU7."),
        (("--virtual", "G:gpu:100"), "Devices on paper compute nothing."),
    ],
)
def test_what_cannot_be_checked_is_refused_in_words(cli, words, title):
    backends = () if "--virtual" in words else CPU

    done = cli("ops", *backends, *words)

    assert done.code == 1
    assert " ".join(done.err.split()).startswith(title)


def test_ctrl_c_keeps_what_was_found(tmp_path):
    text, line = TEMPLATE.read_text(), "    p: Any = node.params\n"
    assert text.count(line) == 1
    slow = text.replace(line, f"{line}    time.sleep(0.5)\n")
    path = tmp_path / "splitscope_backend_sleepy.py"
    path.write_text(slow)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "engine", "ops", "--backends", "cpu", "--load", path,
         "--backend", "Slow", "--op", "ADD"],
        cwd=paths.repository_dir(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=6)
        pytest.fail(f"it was over too soon: {out} {err}")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "not checked" in out
    assert "Stopped: what was found by then is told." in err
