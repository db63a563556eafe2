"""What operations and copies cost on paper: worked out by hand."""

import pytest

from engine.backends.null import costs
from engine.backends.null.costs import DeviceSpeed, link_cost_ns, node_cost_ns, usual_speed
from engine.backends.null.presets import PRESETS
from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.tensor import Tensor
from engine.core.types import TensorType

SPEED = DeviceSpeed(gbps=2, gflops=100, launch_ns=10, link_gbps=4, link_latency_ns=50)
F32, F16, I32 = TensorType.F32, TensorType.F16, TensorType.I32


def leaf(*ne, kind=F32):
    return Tensor(kind, (*ne, 1, 1, 1)[:4])


def test_a_simple_operation_costs_its_launch_and_every_byte_it_touches():
    assert node_cost_ns(build.add(leaf(1000), leaf(1000)), SPEED) == 10 + 3 * 4000 // 2


def test_a_product_costs_the_longer_of_its_bytes_and_its_arithmetic():
    token = build.mul_mat(leaf(64, 32), leaf(64, 1))
    prompt = build.mul_mat(leaf(64, 32), leaf(64, 1000))

    assert node_cost_ns(token, SPEED) == 10 + 4 * (64 * 32 + 64 + 32) // 2
    assert (
        node_cost_ns(prompt, DeviceSpeed(10**6, 100, 10, 4, 50)) == 10 + 2 * 64 * 32 * 1000 // 100
    )


def test_attention_costs_the_arithmetic_of_every_cell_that_it_looks_at():
    q, k, v = leaf(64, 7, 9), leaf(64, 256, 3, kind=F16), leaf(32, 256, 3, kind=F16)
    node = build.flash_attn_ext(q, k, v, None, FlashAttnParams(1.0))

    assert costs._flops(node) == 2 * 256 * (64 + 32) * 7 * 9


def test_rows_cost_what_they_have_and_not_the_whole_table():
    table, ids = leaf(8, 10_000, kind=F16), leaf(3, kind=I32)

    assert costs._touched_bytes(build.get_rows(table, ids)) == 3 * 4 + 3 * 8 * 4 + 3 * 8 * 2
    written = build.set_rows(table, leaf(8, 3), ids)
    assert costs._touched_bytes(written) == 3 * 4 + 3 * 8 * 4 + 3 * 8 * 2


def test_a_copy_into_a_part_of_a_tensor_costs_that_part():
    part = build.view(leaf(8, 10_000), (8, 3, 1, 1), offset=0)

    assert costs._touched_bytes(build.cpy(leaf(8, 3), part)) == 2 * 8 * 3 * 4


@pytest.mark.parametrize(("n_tokens", "n_read"), [(1, 2), (100, 8)])
def test_experts_cost_those_that_may_be_used(n_tokens, n_read):
    weights, x, ids = leaf(4, 4, 8), leaf(4, 1, n_tokens), leaf(2, n_tokens, kind=I32)
    node = build.mul_mat_id(weights, x, ids)

    others = 4 * (4 * n_tokens + 2 * n_tokens + node.n_elems)
    assert costs._touched_bytes(node) == others + n_read * 4 * 4 * 4


def test_the_slower_end_of_a_link_decides():
    other = DeviceSpeed(1, 1, 1, link_gbps=2, link_latency_ns=70)

    assert link_cost_ns(800, SPEED) == 50 + 200
    assert link_cost_ns(800, SPEED, other) == link_cost_ns(800, other, SPEED) == 70 + 400


def test_what_costs_less_than_a_nanosecond_a_byte_still_adds_up():
    fast = DeviceSpeed(gbps=1000, gflops=10**6, launch_ns=0, link_gbps=1, link_latency_ns=0)

    assert node_cost_ns(build.add(leaf(1000), leaf(1000)), fast) == 12


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_speed(preset):
    speed = usual_speed(PRESETS[preset]("D", 1))

    assert min(speed.gbps, speed.gflops, speed.launch_ns, speed.link_gbps) > 0
    assert (speed == costs.USUAL) is (preset == "plain")
