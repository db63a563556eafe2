"""The golden data itself: what the committed set promises is there, with or without the big one."""

import numpy as np
import pytest

from tests.oracle import golden


@pytest.fixture
def without_big_set(monkeypatch, tmp_path):
    monkeypatch.setenv("SPLITSCOPE_ORACLE", str(tmp_path / "nowhere"))


def test_every_scenario_has_a_script_and_results():
    cases = golden.scenarios()

    assert len(cases) == 19
    assert all(case.script.strip() and case.records() for case in cases)


def test_the_older_version_has_sixteen_scenarios():
    cases = golden.scenarios(golden.OLD_VERSION)

    assert len(cases) == 16


def test_a_clone_alone_has_a_hundred_corpus_cases_of_both_versions(without_big_set):
    new, old = golden.corpus(), golden.corpus(golden.OLD_VERSION)

    assert [c.name for c in new] == [c.name for c in old]
    assert len(new) == 100
    assert sum("parallel=1" not in c.script for c in new) >= 70


def test_a_clone_alone_has_placements_of_smollm2(without_big_set):
    cases = golden.placements("smollm2-135m-q4_1")
    commands = golden.placement_commands("smollm2-135m-q4_1")

    assert sorted(commands) == cases
    assert len(cases) == 5
    for case in cases:
        run = golden.placement("smollm2-135m-q4_1", case)
        assert "## SPLIT #0:" in run.log
        assert run.sum.strip()


def test_a_clone_alone_has_the_numbers_of_nano_and_smollm2(without_big_set):
    for name, prompts in golden.tokens().items():
        for prompt, recorded in prompts.items():
            values = golden.logits(name, prompt)
            assert values.dtype == np.float32
            assert int(values.argmax()) == recorded["top10"][0][0]


@pytest.mark.parametrize("flash", ["fa0", "fa1"])
def test_a_clone_alone_has_the_nodes_of_nano(without_big_set, flash):
    folder = golden.nodes_dir(f"nano-llama-f32-{flash}")
    rows = (folder / "nodes.tsv").read_text().splitlines()

    assert len(rows) > 50
    assert len(list(folder.glob("*.npy"))) > 50


def test_a_clone_alone_has_a_model_a_header_and_a_node_list(without_big_set):
    header = golden.header("smollm2-135m-q4_1")
    sizes = golden.header_sizes()["smollm2-135m-q4_1"]

    assert header.stat().st_size == sizes["header_bytes"]
    assert header.read_bytes()[:4] == b"GGUF"
    assert golden.model("nano-llama-f32").read_bytes()[:4] == b"GGUF"
    assert golden.node_list("smollm2-135m-q4_1.p1.fa1").stat().st_size > 0


def test_what_only_the_big_set_has_is_skipped_with_its_reason(without_big_set):
    with pytest.raises(pytest.skip.Exception, match="big golden set is not here"):
        golden.model("tiny-llama-q4_0")


def test_the_committed_set_is_small():
    archives = golden._SMALL_ARCHIVES.glob("*.tar.xz")

    assert sum(p.stat().st_size for p in archives) < 3_000_000


@pytest.mark.big_set
@pytest.mark.parametrize(
    "relative",
    [
        "models/tiny-llama-q4_0.gguf",
        "numeric/nodes-tiny-llama-q4_0-fa1/nodes.tsv",
        "placements/nano-llama-f32/COMMANDS.txt",
        "headers/qwen2.5-0.5b.gguf-header",
        "vulkan/tiny-llama-f32/ngl0.log",
        "arch/models/mamba.gguf",
        "arch/headers/granitemoe.gguf-header",
    ],
)
def test_the_big_set_is_found_by_the_same_paths(relative):
    assert golden.path(relative).is_file()
