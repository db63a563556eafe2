"""-sm row: what is divided, among whom, and what that takes of each device."""

import re

import pytest

from engine.core.devices import RowShares
from engine.core.options import Options
from engine.core.plan import Batch, MemoryKind
from engine.core.rows import rows_of
from engine.errors import PlacementError
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from engine.report.weight_places import weight_places
from tests.engine.nano import nano
from tests.engine.paper import parse_virtual
from tests.oracle import golden
from tests.oracle.placement_command import options_of, recorded_devices

CPU = "CPU:cpu:16384"
TWO = (CPU, "GPU0:gpu:6144:split=1", "GPU1:gpu:2048:split=1")


def planned(path, lines=TWO, **options):
    """The planner of -sm row; the file may be closed, since only its header is read."""
    with open_gguf(path) as file:
        facts = [parse_virtual(line) for line in lines]
        return make_planner(file, facts, Options(split_mode="row", **options))


@pytest.fixture(scope="module")
def dense():
    return planned(nano())


def buft_of(planner, name):
    buffer = planner.weights.tensors[name].buffer
    assert buffer is not None
    return buffer.buft


def test_matrices_of_products_are_divided_and_everything_else_is_kept_whole(dense):
    homes = {name: buft_of(dense, name).name for name in dense.weights.tensors}

    assert homes["token_embd.weight"] == "CPU_Mapped"
    assert homes["blk.0.attn_norm.weight"] == "GPU0"
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        assert homes[f"blk.0.{part}.weight"] == "GPU0_Split", part
    assert homes["output_norm.weight"] == "GPU1"
    assert homes["output.weight"] == "GPU1_Split"


def test_layers_go_to_devices_as_without_it(dense):
    with open_gguf(nano()) as file:
        facts = [parse_virtual(line) for line in TWO]
        by_layer = make_planner(file, facts, Options(split_mode="layer"))

    assert dense.plan_set().layer_devices == by_layer.plan_set().layer_devices
    cache = [(buffer.buft.name, buffer.n_bytes) for buffer in dense.cache.buffers]
    assert cache == [(buffer.buft.name, buffer.n_bytes) for buffer in by_layer.cache.buffers]


def test_products_run_on_their_layers_device(dense):
    plan = dense.plan_set().plans[Batch.PROMPT]
    first = len(plan.graph.leafs)
    devices = {
        node.name: plan.backends[plan.trace.final.backend_ids[first + i]].name
        for i, node in enumerate(plan.graph.nodes)
    }

    assert devices["Qcur-0"] == "GPU0"
    assert devices["result_output"] == "GPU1"


def test_experts_are_kept_whole():
    planner = planned(golden.model("tiny-qwen3moe-q8_0"))

    assert buft_of(planner, "blk.0.ffn_up_exps.weight").name == "GPU0"
    assert buft_of(planner, "blk.0.attn_q.weight").name == "GPU0_Split"


@pytest.mark.parametrize(
    ("options", "shares"),
    [({}, (6144 << 20, 2048 << 20)), ({"tensor_split": (3, 2)}, (3, 2))],
    ids=["free memory", "-ts"],
)
def test_shares_are_those_by_which_layers_are_divided(options, shares):
    buft = buft_of(planned(nano(), **options), "blk.0.attn_q.weight")

    assert buft.row_shares == RowShares(("GPU0", "GPU1"), shares)


def test_only_devices_of_one_family_hold_rows_for_each_other():
    lines = (CPU, "A:gpu:1024:split=1", "R:gpu:1024:preset=rpc,split=1", "B:gpu:1024:split=1")

    planner = planned(nano(), lines)

    memories = planner.placement.split_memories
    assert {name: buft.row_shares.devices for name, buft in memories.items()} == {
        "A": ("A", "B"),
        "R": ("R",),
        "B": ("A", "B"),
    }


def test_the_ledger_counts_rows_on_the_device_that_holds_them(dense):
    rows = [r for r in dense.plan_set().memory.rows if r.kind is MemoryKind.MODEL]

    shares = RowShares(("GPU0", "GPU1"), (3.0, 1.0))
    want = {}
    for buffer in dense.weights.buffers:
        for weight in buffer.weights if buffer.buft.row_shares else ():
            for held in rows_of(weight.tensor.ne[1], shares):
                key = buffer.buft.name, held.device
                want[key] = want.get(key, 0) + held.n_rows * weight.tensor.nb[1]
    counted = {(r.buft.name, r.device): r.n_bytes for r in rows if r.buft.row_shares}
    assert counted == want
    assert set(want) == {(f"{a}_Split", b) for a in ("GPU0", "GPU1") for b in ("GPU0", "GPU1")}


def test_a_device_without_a_share_holds_nothing():
    memory = planned(nano(), tensor_split=(1, 0)).plan_set().memory

    split = {(row.buft.name, row.device) for row in memory.rows if row.buft.row_shares}
    assert split == {("GPU0_Split", "GPU0")}


def test_it_is_no_pipeline(dense):
    assert dense.model.n_copies == 1


@pytest.mark.parametrize(
    "lines",
    [
        (CPU, "RPC0:gpu:4096:preset=rpc", "RPC1:gpu:4096:preset=rpc"),
        (CPU, "GPU0:gpu:4096:split=1", "RPC0:gpu:4096:preset=rpc"),
    ],
    ids=["all", "one of two"],
)
def test_a_device_that_cannot_divide_rows_is_refused_as_llama_cpp_does(lines):
    with pytest.raises(PlacementError) as refused:
        planned(nano(), lines)

    assert refused.value.title == "-sm row needs split memory, and RPC0 has none."
    assert '"device RPC0 does not support split buffers"' in refused.value.sentence


@pytest.mark.big_set
@pytest.mark.parametrize(
    "model",
    [
        "nano-llama-f32", "tiny-llama-f32", "tiny-llama-q4_0", "tiny-llamamoe-f32",
        "tiny-qwen3moe-f32", "smollm2-135m-q4_1", "smollm2-moe4x2", "qwen2.5-0.5b",
        "gemma-3-270m-q4_k_m",
    ],
)  # fmt: skip
def test_what_llama_cpp_refused_in_recorded_runs_is_refused(model):
    log, summary = golden.placement(model, "row")
    command = golden.placement_commands(model)["row"]
    options, devices = options_of(command), recorded_devices(command, log)
    assert options.split_mode == "row"
    assert "exit=1" in summary

    with open_gguf(golden.header(model)) as file, pytest.raises(PlacementError) as refused:
        make_planner(file, devices, options)

    said = re.search(r"device \w+ does not support split buffers", log)
    assert said is not None
    assert said.group() in refused.value.sentence


def test_without_devices_it_changes_nothing():
    planner = planned(nano(), devices=("none",))

    assert buft_of(planner, "blk.0.attn_q.weight").name == "CPU_Mapped"


def test_a_weight_says_who_has_its_rows():
    with open_gguf(nano()) as file:
        facts = [parse_virtual(line) for line in TWO]
        planner = make_planner(file, facts, Options(split_mode="row"))

        (divided,) = weight_places(planner.model, "blk.0.attn_q.weight")
        (whole,) = weight_places(planner.model, "blk.0.attn_norm.weight")

    assert divided.sentence == (
        "In GPU0_Split memory because layer 0 is on GPU0, and GPU0_Split suits: GPU0 runs MUL_MAT "
        "with f32 weights from there. Its rows are divided: 0 \u2013 47 on GPU0, 48 \u2013 63 on "
        "GPU1."
    )
    assert whole.rows == ()
    assert [(tried.buffer_type, tried.suits) for tried in whole.tried] == [
        ("GPU0_Split", False),
        ("GPU0", True),
    ]
