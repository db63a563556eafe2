"""What cannot be shared is found before anything is loaded."""

from dataclasses import dataclass, replace

import pytest

from engine.backends.meta.check import check_shared
from engine.core.options import Options, SplitMode
from engine.core.plan import Batch
from engine.core.shards import shard_along
from engine.errors import PlacementError
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from engine.sched.cross_reads import CrossReads
from tests.engine.paper import parse_virtual
from tests.oracle import golden

CPU = parse_virtual("CPU:cpu:16384")


def planner_on(file, *devices, **options):
    wanted = Options(split_mode=SplitMode.TENSOR, n_ctx=256, **options)
    return make_planner(file, [*devices, CPU], wanted)


def check(planner, shards=None):
    model = planner.model
    shards = model.shards if shards is None else shards
    return [
        check_shared(planned.plan, model.joined, shards, read_outside=CrossReads(planned.plan).of)
        for planned in planner.reserved.values()
    ]


@pytest.fixture
def nano():
    with open_gguf(golden.model("nano-llama-f32")) as file:
        yield file


@dataclass(frozen=True)
class WideOnly:
    """A device whose products have at least 64 rows."""

    rules: object

    def supports_op(self, tensor):
        """As the device, but for narrow products."""
        is_narrow = tensor.op_desc == "MUL_MAT" and tensor.ne[0] < 64
        return self.rules.supports_op(tensor) and not is_narrow

    def supports_buft(self, buft):
        """As the device."""
        return self.rules.supports_buft(buft)

    def offload_op(self, tensor):
        """As the device."""
        return self.rules.offload_op(tensor)


def test_a_plan_whose_parts_all_members_compute_passes(nano):
    a, b = parse_virtual("A:gpu:4096"), parse_virtual("B:gpu:4096")

    check(planner_on(nano, a, b))


def test_exchanges_go_through_room_for_the_largest_of_them(nano):
    """Parts of sums, [n_embd, n_tokens] from both members, or of logits, [n_vocab, n_tokens]."""
    planner = planner_on(nano, parse_virtual("A:gpu:4096"), parse_virtual("B:gpu:4096"))
    prompt = planner.reserved[Batch.PROMPT].plan.shape.n_tokens
    n_embd, n_vocab = planner.hparams.n_embd, planner.hparams.n_vocab

    largest = 4 * max(2 * n_embd, n_vocab)
    found = check(planner)

    assert found == [pytest.approx(largest * n, abs=512) for n in (prompt, 1)]


def test_a_member_without_a_kernel_for_its_part_is_named(nano):
    a, b = parse_virtual("A:gpu:4096"), parse_virtual("B:gpu:4096")
    narrow = replace(b, rules=WideOnly(b.rules))
    planner = planner_on(nano, a, narrow)

    with pytest.raises(PlacementError) as caught:
        check(planner)

    assert caught.value.title == "B cannot compute its part of Qcur-0."
    assert "MUL_MAT of shape [" in caught.value.sentence
    assert caught.value.hint == "Choose other shares (-ts), other devices (-dev), or -sm layer."


def test_a_tensor_that_a_graph_needs_whole_is_named(nano):
    """Keys that are divided by cells: a token's row may be for either member."""
    planner = planner_on(nano, parse_virtual("A:gpu:4096"), parse_virtual("B:gpu:4096"))
    keys = planner.cache.keys[0]

    with pytest.raises(PlacementError, match="cannot share SET_ROWS cache_k_l0") as caught:
        check(planner, {keys: shard_along(1, (128, 128))})

    assert "It reads all of cache_k_l0, of shape [" in caught.value.sentence


def test_splits_of_other_devices_are_nobodys_business(nano):
    a, b = parse_virtual("A:gpu:4096"), parse_virtual("B:gpu:4096")
    planner = planner_on(nano, a, b, n_gpu_layers=1)

    splits = planner.reserved[Batch.PROMPT].plan.trace.cut.splits
    check(planner)

    assert len({split.backend_id for split in splits}) == 2
