"""What our engine computes of recorded models, and what the comparison says of it."""

import shutil
import tarfile
from contextlib import closing

import numpy as np
import pytest

from engine.core.options import FlashAttn, Options, PoolingWish
from engine.gguf.reader import open_gguf
from engine.trace.records import StepKind
from tests.oracle import golden
from tests.oracle.made_numeric import DUMP, MODEL, N_NODES, recorded_values, write_root
from tests.oracle.node_values import loaded
from tests.oracle.numeric_folder import RecordedModel, Setting, models_in
from tests.oracle.numeric_model import compare_model
from tests.oracle.numeric_nodes import (
    DumpResult,
    NodeResult,
    compare_dump,
    judge,
    ordered_values,
)
from tests.oracle.recorded_nodes import RecordedNodes
from tests.oracle.run_numeric import main

MODELS = [
    "bert", "deepseek2", "deepseek2-nomla", "falcon-h1", "gemma3", "gemma4", "gemma4-moe",
    "glm4moe", "gpt-oss", "gptneox", "gptneox-seq", "granitemoe", "llama4", "mamba", "nomic-bert",
    "phi3", "qwen3", "qwen35", "qwen35moe",
]  # fmt: skip

NORM, SCALED = 1, 2
"""Nodes of the first layer; the second is computed from the first."""


def said_of(root, capsys):
    """The exit status, the lines of the model, and the last line."""
    status = main([str(root)])
    *lines, _, last = capsys.readouterr().out.splitlines()
    return status, lines, last


def test_a_recorded_model_is_equal_node_by_node(tmp_path, capsys):
    status, lines, last = said_of(write_root(tmp_path), capsys)

    assert len(lines) == 1
    assert lines[0].startswith(f"{MODEL}: nodes {N_NODES} / {N_NODES} within the bar, largest ")
    assert lines[0].endswith(", tokens equal")
    assert last == f"{N_NODES} nodes equal, 0 different"
    assert status == 0


def test_a_node_outside_of_the_bar_is_named_with_its_error(tmp_path, capsys):
    root = write_root(tmp_path, n0001=recorded_values(NORM) * 1.01)

    status, lines, last = said_of(root, capsys)

    assert lines[0].startswith(f"{MODEL}: nodes {N_NODES - 1} / {N_NODES} within the bar")
    assert lines[1:] == [f"    {DUMP} 1 RMS_NORM norm-0: NMSE 9.8e-05"]
    assert last == f"{N_NODES - 1} nodes equal, 1 different"
    assert status == 1


def test_a_value_that_is_not_finite_counts_as_different(tmp_path, capsys):
    values = recorded_values(NORM)
    values[..., 0] = np.nan

    _, lines, _ = said_of(write_root(tmp_path, n0001=values), capsys)

    assert lines[1].endswith("norm-0: finite where the recording is not, or the other way round")


def test_an_input_that_was_written_otherwise_is_named(tmp_path, capsys):
    root = write_root(tmp_path, leaf02=np.arange(1, 12, dtype=np.int32))

    status, lines, last = said_of(root, capsys)

    assert lines[1:] == [f"    {DUMP} input inp_pos differs"]
    assert last == f"{N_NODES} nodes equal, 0 different"
    assert status == 1


@pytest.mark.parametrize(("n_more", "words"), [(1, "1 more node"), (3, "3 more nodes")])
def test_nodes_that_were_not_recorded_are_counted(tmp_path, capsys, n_more, words):
    root = write_root(tmp_path)
    table = root / "numeric" / MODEL / DUMP / "nodes.tsv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:-n_more]) + "\n")

    status, lines, last = said_of(root, capsys)

    assert lines[1:] == [f"    {DUMP}: ours has {words}"]
    assert last == f"{N_NODES - n_more} nodes equal, 0 different"
    assert status == 1


def test_logits_and_tokens_that_differ_are_told(tmp_path, capsys):
    root = write_root(tmp_path)
    folder = root / "numeric" / MODEL
    tokens = (folder / "p1.c512.fa0.json").read_text()
    (folder / "p1.c512.fa0.json").write_text(tokens.replace("[500, 44,", "[500, 45,"))
    np.save(folder / "p1.c512.fa0.logits.npy", golden.logits(MODEL, "p1") + np.float32(0.5))

    status, lines, _ = said_of(root, capsys)

    assert "tokens p1.c512.fa0.logits token 1: 44, not 45 (" in lines[0]
    assert lines[1] == "    p1.c512.fa0.logits: 0.5 apart, the bar is 0.02"
    assert status == 1


def test_a_model_that_is_not_there_is_absent_and_does_not_count(tmp_path, capsys):
    root = write_root(tmp_path)
    shutil.copytree(root / "numeric" / MODEL, root / "numeric" / "other")

    status, lines, last = said_of(root, capsys)

    assert lines[1:] == ["other: absent, there is no other.gguf"]
    assert last == f"{N_NODES} nodes equal, 0 different, 1 of 2 models absent"
    assert status == 0


def test_without_any_model_there_is_no_success(tmp_path, capsys):
    root = write_root(tmp_path)
    (root / "models" / f"{MODEL}.gguf").unlink()

    status, _, last = said_of(root, capsys)

    assert last == "0 nodes equal, 0 different, 1 of 1 models absent"
    assert status == 1


def test_every_node_can_be_computed_from_recorded_sources(tmp_path):
    root = write_root(tmp_path, n0001=recorded_values(NORM) * 2)
    path = root / "models" / f"{MODEL}.gguf"
    options = Options(devices=("none",), n_ctx=512, flash_attn=FlashAttn.OFF)

    with open_gguf(path) as file, loaded(path, options) as context:
        folder = root / "numeric" / MODEL / DUMP
        result = compare_dump(context, file, folder, StepKind.PROMPT, forced=True)

    # Twice what was recorded: an error as large as the values.
    assert result.nodes[SCALED].error == pytest.approx(1.0)
    assert result.nodes[SCALED + 1].error <= 1e-6


def test_a_model_without_recorded_nodes_is_compared_by_what_it_gives(tmp_path, capsys):
    root = write_root(tmp_path)
    shutil.rmtree(root / "numeric" / MODEL / DUMP)

    status, lines, last = said_of(root, capsys)

    assert lines[0].startswith(f"{MODEL}: nodes 0 / 0 within the bar, largest logit difference ")
    assert last == "0 nodes equal, 0 different"
    assert status == 0


def test_nothing_to_compare_is_no_success(tmp_path, capsys):
    status, lines, _ = said_of(tmp_path, capsys)

    assert (status, lines) == (1, [])


def test_a_device_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--device", "GPU7"])

    assert "There is no device GPU7; here are: " in capsys.readouterr().err


@pytest.mark.parametrize("inner", ["numeric", "numeric/numeric"])
def test_archives_serve_in_place_of_folders(tmp_path, inner):
    made = write_root(tmp_path / "made")
    (tmp_path / "root").mkdir()
    for name, place in (("numeric", inner), ("models", "models")):
        with tarfile.open(tmp_path / "root" / f"{name}.tar.xz", "w:xz") as tar:
            tar.add(made / name, arcname=place)

    (found,) = models_in(tmp_path / "root", tmp_path)

    assert found.name == MODEL
    assert found.model.name == f"{MODEL}.gguf"
    assert [folder.name for dump in found.dumps() for folder in dump.folders] == [DUMP]


def test_names_say_what_a_recording_was_made_with(tmp_path):
    root = write_root(tmp_path / "root")
    folder = root / "numeric" / MODEL
    (folder / "p1.json").write_text("{}")
    for name in ("p1.fa1.pooled", "p1.fa0.tokens", "p1.fa0.pool-cls"):
        np.save(folder / f"{name}.npy", np.zeros(4))

    (found,) = models_in(root, tmp_path)

    assert {output.name: output.setting for output in found.outputs()} == {
        "p1.c512.fa0.logits": Setting(512, FlashAttn.OFF),
        "p1.fa1.pooled": Setting(256, FlashAttn.ON),
        "p1.fa0.tokens": Setting(256, FlashAttn.OFF, PoolingWish.NONE),
        "p1.fa0.pool-cls": Setting(256, FlashAttn.OFF, PoolingWish.CLS),
    }


def results(*nodes):
    """Nodes of a dump by their errors, and which of them are orders that changed."""
    return DumpResult("", [NodeResult("", i, "", "", *node) for i, node in enumerate(nodes)])


def judged(whole, single):
    outside, drifted = judge(whole, single, 1e-6)
    return [node.node_id for node in outside], [node.node_id for node in drifted]


def test_a_node_that_is_right_from_recorded_sources_has_drifted():
    whole = results((1e-7,), (2e-6,), (2e-6,), (0.1,))
    single = results((1e-5,), (1e-8,), (2e-6,), (1e-8,))

    assert judged(whole, single) == ([2, 3], [1])


def test_rows_may_be_far_away_once_near_equal_experts_changed_places():
    whole = results((1e-5, "", True), (0.5,), (0.5,))
    single = results((0.0,), (1e-8,), (2e-6,))

    assert judged(whole, single) == ([2], [0, 1])


def test_an_order_of_values_that_are_far_apart_excuses_nothing():
    whole = results((1e-2, "", True), (0.5,))

    assert judged(whole, results((0.0,), (0.0,))) == ([0, 1], [])


def arch(name):
    folder, model = golden.path(f"arch/numeric/{name}"), golden.path(f"arch/models/{name}.gguf")
    return RecordedModel(name, folder, model)


@pytest.mark.big_set
def test_an_order_is_compared_by_the_values_that_it_orders():
    recorded = arch("granitemoe")
    with (
        open_gguf(recorded.model) as file,
        closing(RecordedNodes(recorded.folder / "nodes-fa0", file)) as graph,
    ):
        found = {
            node.name: np.take_along_axis(values, graph.value(node.key).astype(np.int64), -1)
            for node in graph.nodes
            if (values := ordered_values(graph, node)) is not None
        }

    assert list(found) == [
        f"ffn_moe_{kind}-{il}" for il in range(3) for kind in ("argsort", "topk")
    ]
    assert all((np.diff(values) <= 0).all() for values in found.values())


@pytest.mark.big_set
@pytest.mark.parametrize("name", MODELS)
def test_a_recorded_model_computes_what_llama_cpp_computed(name):
    result = compare_model(arch(name))

    assert list(map(str, result.outside)) == []
    assert (result.n_lost, result.faults, result.tokens) == (0, [], [])


@pytest.mark.big_set
def test_every_recorded_model_is_compared(tmp_path):
    models_of_the_set = models_in(golden.path("arch/numeric/qwen3").parent, tmp_path)

    assert [recorded.name for recorded in models_of_the_set] == MODELS
