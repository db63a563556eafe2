"""Models without a graph here: weights by layer, caches as far as known, nothing to compute."""

import pytest

from engine.core.options import Options
from engine.core.plan import Batch, MemoryKind
from engine.core.types import TensorType
from engine.errors import ModelError
from engine.gguf.reader import open_gguf
from engine.gguf.writer import header_bytes
from engine.model.arch import ARCHITECTURES
from engine.model.generic import architecture_of, check_has_graph
from engine.model.planning import make_planner
from engine.report.models import model_summary
from tests.engine.model.made_arch import made_header
from tests.engine.paper import parse_virtual

KEYS = {
    "block_count": 4,
    "context_length": 1024,
    "embedding_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": [2, 0, 2, 0],
}
TENSORS = {
    "token_embd.weight": (64, 96),
    "token_embd_norm.weight": (64,),
    "output_norm.weight": (64,),
    **{f"blk.{il}.wind.weight": (64, 32) for il in range(4)},
    **{f"blk.{il}.norm.weight": (64,) for il in range(4)},
    "blk.3.ffn_up_exps.weight": (64, 32, 4),
}
DEVICES = [parse_virtual("GPU0:gpu:8000"), parse_virtual("CPU:cpu:16000")]


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a file of an architecture that nobody has heard of."""

    def make(tensors=TENSORS, **keys):
        numbers = {f"storm.{k}": v for k, v in {**KEYS, **keys}.items() if v is not None}
        metadata = {"general.architecture": "storm", **numbers}
        shapes = [(name, TensorType.F32, ne) for name, ne in tensors.items()]
        path = tmp_path / "storm.gguf"
        path.write_bytes(header_bytes(metadata, shapes))
        return open_gguf(path)

    return make


def planner_of(file, **options):
    return make_planner(file, DEVICES, Options(**options))


def homes(planner):
    tensors = planner.weights.tensors
    return {role: tensor.buffer.buft.name.partition("_")[0] for role, tensor in tensors.items()}


def test_weights_follow_the_layer_in_their_name(opened):
    with opened() as file:
        found = homes(planner_of(file, n_gpu_layers=3))

    assert {name: found[f"blk.{il}.wind.weight"] for il, name in enumerate("abcd")} == {
        "a": "CPU", "b": "CPU", "c": "GPU0", "d": "GPU0",
    }  # fmt: skip
    assert found["blk.3.ffn_up_exps.weight"] == "GPU0"
    assert (found["token_embd.weight"], found["output_norm.weight"]) == ("CPU", "GPU0")


def test_embeddings_serve_as_an_output_that_is_absent(opened):
    with opened() as file:
        found = homes(planner_of(file))
    with opened({**TENSORS, "output.weight": (64, 96)}) as file:
        own = planner_of(file).weights.tensors["output.weight"]

    assert found["output.weight"] == "GPU0"
    assert own.name == "output.weight"


def test_layers_with_heads_have_a_cache(opened):
    with opened() as file:
        planner = planner_of(file)

    assert {il: tensor.ne[:2] for il, tensor in planner.cache.keys.items()} == {
        0: (32, 1024), 2: (32, 1024),
    }  # fmt: skip
    rows = planner.plan_set().memory.rows
    assert sum(row.n_bytes for row in rows if row.kind is MemoryKind.KV) == 2 * 2 * 32 * 1024 * 2


@pytest.mark.parametrize(
    "keys",
    [
        {"attention.head_count": None, "attention.head_count_kv": None},
        {"attention.head_count_kv": [2, 2]},
        {"embedding_length": "long", "attention.head_count": "many"},
        {"block_count": None},
        {"block_count": 2},
        {"context_length": -5},
        dict.fromkeys(KEYS),
    ],
)
def test_keys_that_cannot_be_used_are_as_good_as_missing(opened, keys):
    with opened(**keys) as file:
        planner = planner_of(file)

    assert planner.hparams.n_layer == 4
    assert planner.weights.n_tensors == len(TENSORS) + 1


def test_nothing_is_computed(opened):
    with opened() as file:
        plans = planner_of(file).plan_set()

    assert [len(plans.plans[batch].graph.nodes) for batch in Batch] == [0, 0]
    assert not [row for row in plans.memory.rows if row.kind is MemoryKind.COMPUTE and row.n_bytes]


def test_a_model_without_a_graph_is_planned_and_cannot_be_run_and_says_so(opened):
    with opened() as file:
        summary = model_summary(file)
        with pytest.raises(ModelError) as caught:
            check_has_graph(file)

    assert summary.plan_problem == ""
    assert summary.run_problem.startswith(
        "This version has no graph for storm models. They can be placed, not run."
    )
    assert caught.value.title == summary.run_problem.splitlines()[0]


def test_a_known_architecture_is_what_the_table_says(tmp_path):
    with made_header(tmp_path, "llama") as file:
        assert architecture_of(file) is ARCHITECTURES["llama"]
        check_has_graph(file)


def test_a_weight_of_a_layer_too_far_to_be_one_is_the_outputs(opened):
    with opened({**TENSORS, "blk.99999.far.weight": (64, 32)}) as file:
        planner = planner_of(file)

    assert planner.hparams.n_layer == 4
    assert "blk.99999.far.weight" in planner.weights.tensors


def test_a_file_without_layers_has_nothing_to_place(opened):
    file = opened({"token_embd.weight": (64, 96)}, block_count=None)

    with pytest.raises(ModelError, match=r"cannot plan storm.*no layers"):
        architecture_of(file)
