"""Our plans equal what real llama.cpp logged: nodes, causes, splits, sizes, counts."""

import re

import pytest

from engine.gguf.reader import open_gguf
from tests.oracle import golden, run_placements
from tests.oracle.placement_log import compare
from tests.oracle.placement_text import dumps
from tests.oracle.run_placements import Case, cases_in

MODEL = "smollm2-135m-q4_1"
CASES = ["cpu-norpc", "ngl0-norepack", "ngl2-offload", "ngl2-no-op-offload", "ngl-all-1dev"]

MODELS = [
    "gemma-3-270m-q4_k_m",
    "nano-llama-f32",
    "qwen2.5-0.5b",
    MODEL,
    "smollm2-moe4x2",
    "tiny-llama-f32",
    "tiny-llama-q4_0",
    "tiny-llamamoe-f32",
    "tiny-qwen3moe-f32",
]


def differences(case, headers):
    found = run_placements.comparison_of(case, headers).differences
    return [f"{case}: {line}" for line in found]


@pytest.fixture(scope="module")
def header():
    with open_gguf(golden.header(MODEL)) as file:
        yield file


@pytest.mark.parametrize("name", CASES)
def test_a_plan_equals_the_log_of_real_llama_cpp(name, header):
    log, summary = golden.placement(MODEL, name)

    compared = compare(header, golden.placement_commands(MODEL)[name], log, summary)

    assert compared.differences == []


@pytest.mark.big_set
@pytest.mark.parametrize("model", MODELS)
def test_every_recorded_run_of_a_model_is_equal(model):
    folder = golden.path("placements/gemma-3-270m-q4_k_m/COMMANDS.txt").parents[1] / model
    headers = golden.path("headers/gemma-3-270m-q4_k_m.gguf-header").parent
    required = [case for case in cases_in(folder) if not case.left_out]

    assert len(required) >= 21
    assert [line for case in required for line in differences(case, headers)] == []


@pytest.mark.big_set
def test_every_model_with_recorded_runs_is_tried_above():
    folder = golden.path("placements/gemma-3-270m-q4_k_m/COMMANDS.txt").parents[1]

    assert sorted({case.model for case in cases_in(folder)}) == sorted(MODELS)


@pytest.mark.big_set
def test_runs_on_vulkan_are_equal_but_for_its_compute_buffers():
    folder = golden.path("vulkan/tiny-llama-f32/COMMANDS.txt").parents[1]
    headers = golden.path("headers/gemma-3-270m-q4_k_m.gguf-header").parent
    cases = cases_in(folder)

    assert len(cases) == 16
    assert [line for case in cases for line in differences(case, headers)] == []


@pytest.mark.big_set
def test_runs_of_the_small_gemma_are_equal():
    folder = golden.path("arch/placements/gemma3/COMMANDS.txt").parent
    headers = golden.path("arch/headers/gemma3.gguf-header").parent
    cases = cases_in(folder)

    assert len(cases) == 20
    assert [line for case in cases for line in differences(case, headers)] == []


# The comparison sees every field.

EDITS = {
    "an operation": (r"node #  2 \( +MUL\)", "node #  2 (       ADD)"),
    "a name": (r"attn_norm-0 \(", "attn_nprm-0 ("),
    "a size": (r"\(   2K\) \[CPU usr\]", "(   3K) [CPU usr]"),
    "a cause": (r"\[CPU 1\.wgt1\]", "[CPU 1.wgt0]"),
    "a backend": (r"\[CPU 1\.wgt0\]", "[BLAS 1.wgt0]"),
    "a use count": (r"use=1,c=1", "use=2,c=1"),
    "a flag": (r"use=1,c=1", "use=1,c=0"),
    "a source": (r"(node [^\n]*)blk\.3\.attn_q", r"\1blk.3.attn_k"),
    "a split's input": (r"(## SPLIT #1: [^\n]*)\[inp_pos \(   2K\)\]", r"\1[inp_pxs (   2K)]"),
    "a split's backend": (r"## SPLIT #1: RPC0\[127", "## SPLIT #1: RPC1[127"),
    "a lost node": (r"\nnode # 32[^\n]*", ""),
    "the tokens reserved for": (r"n_tokens =  512", "n_tokens =  511"),
    "a lost dump": (r"\n## SPLIT #0: [^\n]*", "\n"),
}

SUMMARY_EDITS = {
    "model": (r"(model buffer size = +)(\d)", r"\g<1>9\2"),
    "KV": (r"(KV buffer size = +)(\d)", r"\g<1>9\2"),
    "output": (r"0\.19 MiB", "0.20 MiB"),
    "compute": (r"(compute buffer size is +\S+\d)\d MiB", r"\g<1>x MiB"),
    "max_nodes": (r"max_nodes = \d+", "max_nodes = 7"),
    "nodes": (r": nodes = \d+", ": nodes = 7"),
    "splits": (r"splits = \d+", "splits = 7"),
    "input objects": (r"input objects = \d+", "input objects = 7"),
    "input tensors": (r"input tensors = \d+", "input tensors = 7"),
    "sched copies": (r"sched copies = \d+", "sched copies = 7"),
    "offloaded": (r"offloaded \d+/", "offloaded 7/"),
}


def edited(text, pattern, replacement):
    changed, n_changes = re.subn(pattern, replacement, text, count=1)
    return changed if n_changes else None


@pytest.mark.parametrize("what", EDITS)
def test_a_log_that_differs_anywhere_is_told(what, header):
    for name in CASES:
        log, summary = golden.placement(MODEL, name)
        changed = edited(log, *EDITS[what])
        if changed is None:
            continue

        compared = compare(header, golden.placement_commands(MODEL)[name], changed, summary)

        assert compared.differences
        return
    pytest.fail(f"no recorded run has {what} to change")


@pytest.mark.parametrize("what", SUMMARY_EDITS)
def test_a_summary_that_differs_anywhere_is_told(what, header):
    log, summary = golden.placement(MODEL, "ngl2-offload")
    changed = edited(summary, *SUMMARY_EDITS[what])

    compared = compare(header, golden.placement_commands(MODEL)["ngl2-offload"], log, changed)

    assert [line.split(":")[0] for line in compared.differences] == [what]


def test_a_dump_ends_where_something_else_begins():
    lines = ["text", "## SPLIT #0: CPU # 0 inputs", "node #  0 x", "", "## SPLIT #1: CPU", "other"]
    log = "\n".join([*lines, "node #  1 stray", "## SPLIT #0: G", "node #  0 y"])

    assert dumps(log) == [[*lines[1:3], lines[4]], ["## SPLIT #0: G", "node #  0 y"]]


# The runner on a folder that nobody has seen.


@pytest.fixture
def folders(tmp_path):
    """Two equal cases, one of a row split, and their header."""
    cases, headers = tmp_path / "cases" / "made", tmp_path / "headers"
    cases.mkdir(parents=True)
    headers.mkdir()
    (headers / "made.gguf-header").write_bytes(golden.header(MODEL).read_bytes())
    commands = golden.placement_commands(MODEL)
    lines = ["row: llama-completion -ngl all -sm row"]
    for name in CASES[:2]:
        lines.append(f"{name}: {commands[name]}")
        log, summary = golden.placement(MODEL, name)
        (cases / f"{name}.log").write_text(log, encoding="utf-8")
        (cases / f"{name}.sum").write_text(summary, encoding="utf-8")
    (cases / "COMMANDS.txt").write_text("\n".join(lines), encoding="utf-8")
    run_placements.open_header.cache_clear()
    return cases, headers


def run(capsys, cases, headers):
    code = run_placements.main([str(cases), str(headers)])
    return code, capsys.readouterr().out.splitlines()


def test_the_runner_tells_each_case_and_counts(folders, capsys):
    code, lines = run(capsys, folders[0].parent, folders[1])

    assert code == 0
    assert lines[0].startswith("left out made/row: ")
    assert lines[1:3] == ["equal made/cpu-norpc", "equal made/ngl0-norepack"]
    assert lines[-1] == "2 equal, 0 different"


def test_the_runner_tells_what_differs_and_fails(folders, capsys):
    path = folders[0] / "cpu-norpc.sum"
    path.write_text(path.read_text().replace("max_nodes = ", "max_nodes = 1"))

    code, lines = run(capsys, *folders)

    assert code == 1
    assert lines[1] == "different made/cpu-norpc"
    assert lines[2].startswith("    max_nodes: ours 2176 recorded ")
    assert lines[-1] == "1 equal, 1 different"


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("headers/made.gguf-header", "There is no header made.gguf-header in "),
        ("cases/made/cpu-norpc.log", "FileNotFoundError at "),
    ],
)
def test_a_case_that_lacks_something_is_different(folders, tmp_path, capsys, missing, reason):
    (tmp_path / missing).unlink()

    code, lines = run(capsys, *folders)

    assert code == 1
    assert lines[1] == "different made/cpu-norpc"
    assert lines[2].strip().startswith(reason)


def test_a_model_without_a_graph_is_different(folders, capsys):
    header = folders[1] / "made.gguf-header"
    header.write_bytes(
        header.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxama", 1)
    )

    code, lines = run(capsys, *folders)

    assert code == 1
    assert lines[2].strip().startswith("This version has no graph for lxama models.")


@pytest.mark.parametrize("arguments", [[], ["one"], ["/nowhere", "/nowhere"]])
def test_the_runner_says_how_it_is_used(arguments, capsys):
    assert run_placements.main(arguments) == 2
    assert capsys.readouterr().out.startswith(("Usage: ", "There is no folder /nowhere."))


@pytest.mark.parametrize(
    ("mode", "ended", "left_out"),
    [
        ("row", "exit=0", run_placements.NO_ROWS),
        ("tensor", "exit=0", ""),
        ("tensor", "", ""),
        ("tensor", "exit=134", "llama.cpp itself stopped with exit code 134"),
        ("layer", "exit=139", ""),
    ],
)
def test_a_case_says_why_nothing_is_required_of_it(tmp_path, mode, ended, left_out):
    (tmp_path / "case.sum").write_text(f"n = 1\n{ended}\n", encoding="utf-8")

    assert Case("m", "case", f"llama -sm {mode} -p x", tmp_path).left_out == left_out


@pytest.mark.big_set
def test_of_joined_devices_nodes_and_splits_are_required_and_sizes_reported(header):
    log, summary = golden.placement(MODEL, "tensor")
    command = golden.placement_commands(MODEL)["tensor"]

    equal = compare(header, command, log, summary)
    other_log = log.replace("SPLIT #1: Meta(RPC0,RPC1)", "SPLIT #1: Meta(RPC0,RPC2)")
    different = compare(header, command, other_log, summary)

    assert equal.differences == []
    assert [line.split(":")[0] for line in equal.reported] == ["model", "KV"]
    assert len(different.differences) == 8
