"""Every kernel but products against numpy in float64: one case table an operation, odd sizes too.

All cases run twice where the device is a CPU: as it is driven, and as a GPU would be.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import (
    MULTI_ROPES,
    ROPE_IMROPE,
    ROPE_MROPE,
    ROPE_NEOX,
    ROPE_NORM,
    GluOp,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import NMSE, nmse, rand, slopes

F32, F16, I32 = TensorType.F32, TensorType.F16, TensorType.I32

pytestmark = pytest.mark.gpu


@pytest.fixture
def bench(every_bench):
    return every_bench


BINARIES = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}


@pytest.mark.parametrize("op", BINARIES)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((64,), (64,)),
        ((3, 5, 7), (3, 5, 7)),
        ((4, 5001), (5001,)),
        ((2, 3, 4, 24), (3, 1, 24)),
        ((2, 6, 24), (1, 1)),
        ((2, 6, 27), (6, 1)),
        ((2, 6, 24), (6, 8)),
        ((2, 6, 24), (3, 1)),
    ],
)
def test_binary_operations_repeat_their_second_source(bench, op, a_shape, b_shape):
    a, b = bench.leaf(F32, rand(*a_shape)), bench.leaf(F32, rand(*b_shape) + 3)

    got = bench.compute(build.binary(op, a, b))

    repeats = [na // nb for na, nb in zip(a.ne[::-1], b.ne[::-1], strict=True)]
    want = BINARIES[op](bench.floats(a), np.tile(bench.floats(b), repeats))
    assert nmse(got, want) <= NMSE


def test_a_binary_operation_reads_strided_views(bench):
    base = bench.leaf(F32, rand(6, 40))
    window = build.view(base, (13, 5), (160,), offset=3 * 4)
    bias = bench.leaf(F32, rand(13))

    got = bench.compute(window, build.add(window, bias))

    want = bench.floats(base)[0, 0, 0:5, 3:16] + bench.floats(bias).reshape(13)
    assert nmse(got[0, 0], want) <= NMSE


@pytest.mark.parametrize("n", [1, 7, 64, 4099])
def test_scale_multiplies_and_adds(bench, n):
    x = bench.leaf(F32, rand(3, n))

    got = bench.compute(build.scale(x, 0.25, 1.5))

    assert nmse(got, bench.floats(x) * 0.25 + 1.5) <= NMSE


@pytest.mark.parametrize("n", [1, 13, 4099])
def test_clamp_moves_elements_into_its_bounds(bench, n):
    x = bench.leaf(F32, rand(2, n))

    got = bench.compute(build.clamp(x, 6.103515625e-5, float("inf")))

    assert np.array_equal(got, np.maximum(bench.floats(x), np.float32(6.103515625e-5)))


@pytest.mark.parametrize("n", [1, 13, 4099])
def test_fill_sets_every_element(bench, n):
    x = bench.leaf(F32, rand(2, n))

    got = bench.compute(build.fill(x, float("-inf")))

    assert np.array_equal(got, np.full(got.shape, -np.inf))


@pytest.mark.parametrize(("n", "n_slots", "n_tokens"), [(8, 1, 1), (13, 2, 5), (2500, 3, 2)])
def test_add_id_adds_the_rows_that_ids_name(bench, n, n_slots, n_tokens):
    a, b = bench.leaf(F32, rand(n_tokens, n_slots, n)), bench.leaf(F32, rand(7, n))
    sorted_ids = bench.leaf(I32, np.random.default_rng(n).integers(0, 7, (n_tokens, 7)))
    ids = build.view(sorted_ids, (n_slots, n_tokens), (7 * 4,))

    got = bench.compute(ids, build.add_id(a, b, ids))

    picked = bench.floats(b)[0, 0][bench.values[sorted_ids][:, :n_slots]]
    assert nmse(got[0], bench.floats(a)[0] + picked) <= NMSE


def test_add_id_shows_an_id_outside_the_table(bench):
    a, b = bench.leaf(F32, rand(1, 2, 9)), bench.leaf(F32, rand(4, 9))

    got = bench.compute(build.add_id(a, b, bench.leaf(I32, np.array([[4, 0]]))))

    assert np.isnan(got[0, 0, 0]).all()
    assert np.isfinite(got[0, 0, 1]).all()


def gelu(x):
    """The tanh form, looked up by the next half float in a table of half floats."""
    t = x.astype(np.float16).astype(np.float64)
    near = 0.5 * t * (1 + np.tanh(0.7978845608 * t * (1 + 0.044715 * t * t)))
    return np.where(x <= -10, 0, np.where(x >= 10, x, near.astype(np.float16)))


UNARIES = {
    UnaryOp.SILU: lambda x: x / (1 + np.exp(-x)),
    UnaryOp.TANH: np.tanh,
    UnaryOp.GELU: gelu,
    UnaryOp.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
    UnaryOp.SOFTPLUS: lambda x: np.log1p(np.exp(x)),
}


@pytest.mark.parametrize("kind", UNARIES)
@pytest.mark.parametrize("shape", [(1,), (3, 13), (2, 3, 4096)])
def test_unary_functions_hold_over_a_wide_range(bench, kind, shape):
    x = bench.leaf(F32, rand(*shape, scale=8.0))

    got = bench.compute(build.unary(x, kind))

    assert nmse(got, UNARIES[kind](bench.floats(x).astype(np.float64))) <= NMSE


GATES = {GluOp.SWIGLU: UnaryOp.SILU, GluOp.GEGLU: UnaryOp.GELU}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("shape", [(1, 8), (5, 13), (4, 1536)])
def test_gated_units_multiply_the_second_source(bench, kind, shape):
    gate, up = bench.leaf(F32, rand(*shape)), bench.leaf(F32, rand(*shape[::-1]).T)

    got = bench.compute(build.glu_split(gate, up, kind))

    want = UNARIES[GATES[kind]](bench.floats(gate).astype(np.float64)) * bench.floats(up)
    assert nmse(got, want) <= NMSE


def test_a_gate_of_gpt_oss_is_bounded_and_up_is_moved_by_one(bench):
    gate, up = (bench.leaf(F32, rand(5, n, scale=8.0)) for n in (13, 13))
    bench.values[up] = -bench.values[gate][::-1].copy()

    got = bench.compute(build.glu_split(gate, up, GluOp.SWIGLU_OAI, alpha=1.702, limit=7.0))

    a = np.minimum(bench.floats(gate).astype(np.float64), 7)
    b = np.clip(bench.floats(up).astype(np.float64), -7, 7)
    assert nmse(got, a / (1 + np.exp(-1.702 * a)) * (b + 1)) <= NMSE


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("shape", [(1, 16), (2, 5, 26), (4, 5000)])
def test_gated_units_of_one_tensor_take_its_first_half_as_the_gate(bench, kind, shape):
    both = bench.leaf(F32, rand(*shape))

    got = bench.compute(build.glu(both, kind))

    gate, up = np.split(bench.floats(both).astype(np.float64), 2, axis=-1)
    assert nmse(got, UNARIES[GATES[kind]](gate) * up) <= NMSE


def test_gated_units_read_halves_of_one_tensor(bench):
    both = bench.leaf(F32, rand(3, 2, 24))
    gate, up = (build.view(both, (12, 2, 3), both.nb[1:3], offset=at) for at in (0, 48))

    got = bench.compute(gate, up, build.glu_split(gate, up, GluOp.SWIGLU))

    values = bench.floats(both).astype(np.float64)
    want = UNARIES[UnaryOp.SILU](values[..., :12]) * values[..., 12:]
    assert nmse(got, want) <= NMSE


@pytest.mark.parametrize("shape", [(1, 576), (5, 13), (2, 3, 4, 64)])
def test_rms_norm_divides_rows_by_their_root_mean_square(bench, shape):
    x = bench.leaf(F32, rand(*shape, scale=3.0))

    got = bench.compute(build.rms_norm(x, 1e-5))

    values = bench.floats(x).astype(np.float64)
    want = values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + 1e-5)
    assert nmse(got, want) <= NMSE


@pytest.mark.parametrize("shape", [(1, 576), (5, 13), (2, 3, 4, 64)])
def test_norm_takes_the_mean_off_and_divides_by_the_deviation(bench, shape):
    x = bench.leaf(F32, rand(*shape) + 5)

    got = bench.compute(build.norm(x, 1e-5))

    values = bench.floats(x).astype(np.float64)
    values = values - values.mean(axis=-1, keepdims=True)
    want = values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + 1e-5)
    assert nmse(got, want) <= NMSE


@pytest.mark.parametrize("shape", [(1, 1), (5, 8), (2, 3, 4, 133)])
def test_sum_rows_adds_up_each_row(bench, shape):
    x = bench.leaf(F32, rand(*shape) + 1)

    got = bench.compute(build.sum_rows(x))

    assert nmse(got, bench.floats(x).astype(np.float64).sum(axis=-1, keepdims=True)) <= NMSE


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 8), (2, 3, 128), (2, 4096)])
def test_argsort_gives_the_order_of_each_row(bench, descending, shape):
    x = bench.leaf(F32, rand(*shape))

    got = bench.compute(build.argsort(x, descending=descending))

    values = bench.floats(x)
    assert np.array_equal(got, np.argsort(-values if descending else values, axis=-1))


@pytest.mark.parametrize("descending", [False, True])
def test_argsort_keeps_the_order_of_equal_elements(bench, descending):
    x = bench.leaf(F32, np.array([[0.5, -1.0, 0.5, -0.0, 0.0, -1.0]]))

    got = bench.compute(build.argsort(x, descending=descending))

    want = [0, 2, 3, 4, 1, 5] if descending else [1, 5, 3, 4, 0, 2]
    assert got.reshape(-1).tolist() == want


def test_argsort_gives_every_index_once_where_a_number_is_none(bench):
    x = bench.leaf(F32, np.array([[np.nan, 1.0, np.nan, -np.inf, 0.0]]))

    got = bench.compute(build.argsort(x, descending=True))

    assert sorted(got.reshape(-1).tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("source_type", [F32, F16])
def test_cont_makes_any_permutation_gapless(bench, axes, source_type):
    x = bench.leaf(source_type, rand(2, 3, 5, 12))
    permuted = build.permute(x, axes)

    got = bench.compute(permuted, build.cont(permuted))

    places = [axes.index(i) for i in range(4)]
    want = bench.values[x].transpose([3 - places[3 - i] for i in range(4)])
    assert np.array_equal(got, want)


def test_cont_may_take_another_shape(bench):
    x = bench.leaf(F32, rand(3, 5, 8))
    permuted = build.permute(x, (0, 2, 1, 3))

    got = bench.compute(permuted, build.cont(permuted, (24, 5, 1, 1)))

    want = bench.values[x].transpose(1, 0, 2).reshape(1, 1, 5, 24)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 3, 5, 13), (1, 1, 1, 2500)])
def test_concat_puts_one_tensor_behind_the_other(bench, dim, shape):
    longer = [n + 3 if i == 3 - dim else n for i, n in enumerate(shape)]
    a, b = bench.leaf(F32, rand(*shape)), bench.leaf(F32, rand(*longer))

    got = bench.compute(build.concat(a, b, dim))

    want = np.concatenate([bench.values[a], bench.values[b]], axis=3 - dim)
    assert np.array_equal(got, want)


def test_concat_reads_transposed_sources(bench):
    a, b = bench.leaf(F32, rand(6, 3)), bench.leaf(F32, rand(20, 6))
    columns = build.transpose(b)

    got = bench.compute(columns, build.concat(a, columns, 0))

    assert np.array_equal(got[0, 0], np.hstack([bench.values[a], bench.values[b].T]))


@pytest.mark.parametrize(
    ("shape", "times"), [((1, 4), (1, 12, 1, 1)), ((3, 1, 16), (2, 1, 4, 1)), ((13,), (1, 2, 1, 3))]
)
def test_repeat_puts_copies_beside_one_another(bench, shape, times):
    x = bench.leaf(F32, rand(*shape))
    want = np.tile(bench.floats(x), times)

    got = bench.compute(build.repeat(x, *want.shape[::-1]))

    assert np.array_equal(got, want)


@pytest.mark.parametrize(("n", "n_after"), [(5, 3), (16, 16), (2040, 30)])
def test_pad_makes_rows_longer_by_zeros(bench, n, n_after):
    x = bench.leaf(F32, rand(2, 3, n))

    got = bench.compute(build.pad(x, n_after))

    assert np.array_equal(got[0], np.pad(bench.values[x], ((0, 0), (0, 0), (0, n_after))))


@pytest.mark.parametrize(("source_type", "target_type"), [(F32, F16), (F16, F32), (F32, F32)])
def test_cpy_converts_into_a_strided_window(bench, source_type, target_type):
    x = bench.leaf(source_type, rand(5, 13))
    base = bench.leaf(target_type, np.zeros((7, 20)))
    step = base.type.block_bytes
    window = build.view(base, (13, 5), (20 * step,), offset=3 * step)

    bench.run(window, build.cpy(x, window))

    want = np.zeros((1, 1, 7, 20), bench.values[base].dtype)
    want[0, 0, 0:5, 3:16] = bench.values[x]
    assert np.array_equal(bench.read(base), want)


@pytest.mark.parametrize("shape", [(1, 1, 8), (3, 5, 13), (2, 4, 260)])
@pytest.mark.parametrize("mask_type", [None, F32, F16])
def test_soft_max_adds_its_mask(bench, shape, mask_type):
    x = bench.leaf(F32, rand(*shape, scale=4.0))
    hidden = np.triu(np.full(shape[1:], -np.inf), 1)
    mask = None if mask_type is None else bench.leaf(mask_type, hidden)

    got = bench.compute(build.soft_max(x, mask, SoftMaxParams(scale=0.3)))

    logits = bench.floats(x).astype(np.float64) * 0.3 + (0 if mask is None else hidden)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    assert nmse(got, weights / weights.sum(axis=-1, keepdims=True)) <= NMSE


@pytest.mark.parametrize("n_heads", [1, 4, 6])
@pytest.mark.parametrize("mask_type", [F32, F16])
def test_soft_max_leaves_a_share_to_sinks(bench, n_heads, mask_type):
    x = bench.leaf(F32, rand(2, n_heads, 3, 13, scale=3.0))
    sinks = bench.leaf(F32, rand(n_heads, scale=4.0))
    hidden = np.triu(np.full((3, 13), -np.inf), 1)
    node = build.soft_max(x, bench.leaf(mask_type, hidden), SoftMaxParams(scale=0.5), sinks=sinks)

    got = bench.compute(node)

    sink = np.broadcast_to(bench.values[sinks][:, None, None], (2, n_heads, 3, 1))
    logits = np.concatenate([bench.floats(x).astype(np.float64) * 0.5 + hidden, sink], axis=-1)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    assert nmse(got, (weights / weights.sum(axis=-1, keepdims=True))[..., :-1]) <= NMSE


@pytest.mark.parametrize("n_heads", [8, 12])
def test_soft_max_weighs_its_mask_by_head(bench, n_heads):
    x = bench.leaf(F32, rand(n_heads, 3, 13))
    mask = bench.leaf(F32, -np.abs(rand(3, 13, scale=5.0)))

    got = bench.compute(build.soft_max(x, mask, SoftMaxParams(max_bias=8.0)))

    logits = bench.floats(x)[0] + slopes(n_heads, 8.0)[:, None, None] * bench.values[mask]
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    assert nmse(got[0], weights / weights.sum(axis=-1, keepdims=True)) <= NMSE


def positions_of_pairs(positions, params):
    """[t, pairs]: of positions [t], or of positions [4, t] the one of each pair's section."""
    if params.mode not in MULTI_ROPES:
        return positions[:, None]
    lengths, kinds = params.sections, []
    for j in range(params.n_dims // 2):
        place = j % sum(lengths)
        if params.mode == ROPE_MROPE:
            kinds.append(np.repeat(range(4), lengths)[place])
        else:
            kinds.append(place % 3 if place < 3 * lengths[place % 3] else 3)
    return positions[kinds].T


def rotated(x, positions, params, factors=None):
    """ROPE in float64; x [t, heads, d]. Source: ARCH.md 1.9."""
    x = x.astype(np.float64)
    half = params.n_dims // 2
    j = np.arange(half)
    extrapolated = positions_of_pairs(positions, params) * params.freq_base ** (
        -2.0 * j / params.n_dims
    )
    if factors is not None:
        extrapolated = extrapolated / factors
    angle, magnitude = params.freq_scale * extrapolated, params.attn_factor
    if params.ext_factor:

        def pair_of(turns):
            length = np.log(params.n_ctx_orig / (2 * np.pi * turns))
            return params.n_dims * length / (2 * np.log(params.freq_base))

        low = max(0, np.floor(pair_of(params.beta_fast)))
        high = min(params.n_dims - 1, np.ceil(pair_of(params.beta_slow)))
        ramp = (1 - np.clip((j - low) / max(0.001, high - low), 0, 1)) * params.ext_factor
        angle = angle * (1 - ramp) + extrapolated * ramp
        magnitude *= 1 + 0.1 * np.log(1 / params.freq_scale)
    cosine, sine = (f(angle)[:, None, :] * magnitude for f in (np.cos, np.sin))
    out = x.copy()
    x, rotating = (a[..., params.offset :] for a in (x, out))
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    if params.mode != ROPE_NORM:
        pairs = (slice(0, half), slice(half, 2 * half))
    a, b = x[..., pairs[0]], x[..., pairs[1]]
    rotating[..., pairs[0]] = a * cosine - b * sine
    rotating[..., pairs[1]] = a * sine + b * cosine
    return out


YARN = {"n_ctx_orig": 2048, "freq_scale": 0.25, "ext_factor": 1.0, "attn_factor": 1.1}


@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("changes", [{}, {"freq_base": 1e6, "freq_scale": 0.5}, YARN])
@pytest.mark.parametrize(("d", "n_dims"), [(64, 64), (80, 20), (10, 6), (256, 256)])
def test_rope_rotates_pairs(bench, mode, changes, d, n_dims):
    x = bench.leaf(F32, rand(4, 3, d))
    positions = np.array([0, 1, 77, 2000])
    params = RopeParams(n_dims=n_dims, mode=mode, **changes)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions), None, params))

    assert nmse(got[0], rotated(bench.floats(x)[0], positions, params)) <= NMSE


@pytest.mark.parametrize("mode", [ROPE_MROPE, ROPE_IMROPE])
@pytest.mark.parametrize("sections", [(4, 6, 6, 0), (2, 2, 2, 2), (11, 11, 10, 0), (3, 0, 2, 1)])
def test_rope_turns_each_pair_by_the_position_of_its_section(bench, mode, sections):
    x = bench.leaf(F32, rand(3, 2, 80))
    positions = np.array([[0, 5, 900], [1, 6, 40], [2, 77, 41], [9, 8, 7]])
    params = RopeParams(n_dims=64, mode=mode, sections=sections)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions.reshape(-1)), None, params))

    assert nmse(got[0], rotated(bench.floats(x)[0], positions, params)) <= NMSE


@pytest.mark.parametrize("mode", [ROPE_NORM, ROPE_NEOX])
def test_rope_leaves_what_comes_before_its_offset(bench, mode):
    x = bench.leaf(F32, rand(4, 3, 48))
    positions = np.array([0, 1, 77, 2000])
    params = RopeParams(n_dims=16, mode=mode, offset=24)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions), None, params))

    assert nmse(got[0], rotated(bench.floats(x)[0], positions, params)) <= NMSE
    assert np.array_equal(got[0, :, :, :24], bench.values[x][:, :, :24])


def test_rope_divides_angles_by_factors(bench):
    x = bench.leaf(F32, rand(2, 3, 64))
    factors = bench.leaf(F32, 1 + np.arange(32, dtype=np.float32) / 4)
    positions = np.array([5, 900])
    params = RopeParams(n_dims=64, mode=2)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions), factors, params))

    want = rotated(bench.floats(x)[0], positions, params, bench.floats(factors).reshape(32))
    assert nmse(got[0], want) <= NMSE


def test_rope_may_write_over_its_source(bench):
    x = bench.leaf(F32, rand(2, 3, 64))
    positions = np.array([5, 900])
    node = build.rope(x, bench.leaf(I32, positions), None, RopeParams(n_dims=64, mode=2))
    graph = bench.graph(node)
    graph.places = {**graph.places, node: graph.places[x]}

    bench.backend.graph_compute(graph)
    bench.backend.synchronize()

    assert nmse(bench.read(x)[0], rotated(bench.floats(x)[0], positions, node.params)) <= NMSE
