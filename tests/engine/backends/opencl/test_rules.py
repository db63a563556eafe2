"""Rules without a device."""

from __future__ import annotations

import pytest

from engine.backends.opencl.encode import ENCODERS
from engine.backends.opencl.readers import CACHE_TYPES, READERS
from engine.backends.opencl.rules import SUPPORTED, OpenClRules
from engine.backends.opencl.warmup import sample_nodes
from engine.core import build
from engine.core.build_recurrent import gated_delta_net, ssm_conv, ssm_scan
from engine.core.devices import BufferFacts, BufferTypeFacts, BufferUsage, RowShares
from engine.core.ops import ROPE_MROPE, FlashAttnParams, GluOp, Op, RopeParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
Q8_0, Q4_K = TensorType.Q8_0, TensorType.Q4_K
RULES = OpenClRules("OpenCL0")


def leaf(tensor_type: TensorType, *ne: int) -> Tensor:
    return Tensor(tensor_type, shape4(*ne))


def test_every_rule_has_a_kernel_and_every_kernel_a_rule():
    assert set(SUPPORTED) == set(ENCODERS)


def test_every_sample_of_the_warm_up_is_supported():
    assert all(RULES.supports_op(node) for node in sample_nodes())


def test_the_warm_up_covers_every_operation():
    assert {node.op for node in sample_nodes()} >= set(SUPPORTED) - {Op.CONT}


def test_every_weight_type_but_one_rounds_activations_in_its_blocks():
    rounded = {t: reader.rounding.block for t, reader in READERS.items() if reader.rounding}

    assert rounded == {t: t.block_elems for t in READERS if t is not F32}


@pytest.mark.parametrize("weight_type", READERS)
def test_every_weight_type_is_multiplied_and_looked_up(weight_type):
    k = max(32, weight_type.block_elems)
    weight, ids = leaf(weight_type, k, 4, 3), leaf(I32, 2, 5)
    table = leaf(weight_type, k, 4)

    assert RULES.supports_op(build.mul_mat(weight, leaf(F32, k, 5, 3)))
    assert RULES.supports_op(build.mul_mat_id(weight, leaf(F32, k, 1, 5), ids))
    assert RULES.supports_op(build.get_rows(table, leaf(I32, 2)))


@pytest.mark.parametrize("weight_type", sorted(set(TensorType) - set(READERS)))
def test_other_types_are_refused_wherever_they_are_weights(weight_type):
    k = max(32, weight_type.block_elems)
    weight = leaf(weight_type, k, 4, 3)

    assert not RULES.supports_op(build.mul_mat(weight, leaf(F32, k, 5, 3)))
    assert not RULES.supports_op(build.mul_mat_id(weight, leaf(F32, k, 1, 5), leaf(I32, 2, 5)))
    assert not RULES.supports_op(build.get_rows(leaf(weight_type, k, 4), leaf(I32, 2)))


@pytest.mark.parametrize("k_type", CACHE_TYPES)
@pytest.mark.parametrize("v_type", CACHE_TYPES)
def test_caches_of_two_types_are_written_and_attended_to(k_type, v_type):
    k, v = leaf(k_type, 256, 8, 1), leaf(v_type, 256, 8, 1)
    attention = build.flash_attn_ext(leaf(F32, 256, 2, 4), k, v, leaf(F16, 8, 2), FlashAttnParams())

    assert RULES.supports_op(attention)
    assert RULES.supports_op(build.set_rows(k, leaf(F32, 256, 2, 1), leaf(I64, 2)))


def test_latent_attention_is_attended_to():
    q, k = leaf(F32, 576, 2, 128), leaf(F16, 576, 300, 1)
    v = build.view(k, (512, 300, 1), k.nb[1:3])
    mask = leaf(F16, 300, 2)

    assert RULES.supports_op(build.flash_attn_ext(q, k, v, mask, FlashAttnParams()))


def test_views_are_always_supported():
    assert RULES.supports_op(build.reshape(leaf(TensorType.IQ1_S, 256, 2), 512))


NARROW_HEADS = build.view(leaf(Q8_0, 64, 5), (16, 5, 4), (68, 17))
"""Four heads of half a block each."""

SCAN = ssm_scan(
    leaf(F32, 8, 4, 2, 1), leaf(F32, 4, 2, 3), leaf(F32, 2, 3), leaf(F32, 1, 2),
    leaf(F32, 8, 1, 3), leaf(F32, 8, 1, 3), leaf(I32, 1),
)  # fmt: skip

REFUSED = {
    "rows that are no whole blocks": build.mul_mat(
        build.view(leaf(Q8_0, 64, 4), (16, 4), (68,)), leaf(F32, 16)
    ),
    "experts picked by wide ids": build.mul_mat_id(
        leaf(F32, 8, 4, 2), leaf(F32, 8, 1, 3), leaf(I64, 2, 3)
    ),
    "half float biases of experts": build.add_id(
        leaf(F32, 8, 2, 3), leaf(F16, 8, 4), leaf(I32, 2, 3)
    ),
    "sorting long rows": build.argsort(leaf(F32, 8192)),
    "half float activations": build.mul_mat(leaf(F32, 8, 4), leaf(F16, 8, 2)),
    "a transposed weight": build.mul_mat(build.transpose(leaf(F16, 4, 8)), leaf(F32, 8)),
    "the order of half floats": build.argsort(leaf(F16, 8)),
    "half float sums": build.add(leaf(F16, 8), leaf(F16, 8)),
    "a transposed source": build.scale(build.transpose(leaf(F32, 4, 8)), 2.0),
    "a rope of sections without a section": build.rope(
        leaf(F32, 64, 2, 3), leaf(I32, 12), None, RopeParams(n_dims=64, mode=ROPE_MROPE)
    ),
    "a rope past the end of heads": build.rope(
        leaf(F32, 64, 2, 3), leaf(I32, 3), None, RopeParams(n_dims=48, offset=32)
    ),
    "a rope of a kind that is not known": build.rope(
        leaf(F32, 64, 2, 3), leaf(I32, 12), None, RopeParams(n_dims=32, mode=24)
    ),
    "joined half floats": build.concat(leaf(F16, 8), leaf(F16, 8), 0),
    "half float gates": build.glu(leaf(F16, 8), GluOp.SWIGLU),
    "heads that are no multiple of 8": build.flash_attn_ext(
        leaf(F32, 12, 2, 1), leaf(F16, 12, 5, 1), leaf(F16, 12, 5, 1), None, FlashAttnParams()
    ),
    "heads longer than 576": build.flash_attn_ext(
        leaf(F32, 584, 2, 1), leaf(F16, 584, 5, 1), leaf(F16, 512, 5, 1), None, FlashAttnParams()
    ),
    "a cache that nothing writes": build.flash_attn_ext(
        leaf(F32, 256, 2, 1), leaf(Q4_K, 256, 5, 1), leaf(Q4_K, 256, 5, 1), None, FlashAttnParams()
    ),
    "heads that are no whole blocks": build.flash_attn_ext(
        leaf(F32, 16, 2, 4), NARROW_HEADS, NARROW_HEADS, None, FlashAttnParams()
    ),
    "rows into a table that nothing writes": build.set_rows(
        leaf(Q4_K, 256, 4), leaf(F32, 256, 2), leaf(I64, 2)
    ),
    "a convolution of states": ssm_conv(leaf(F32, 7, 16), leaf(F32, 4, 16)),
    "a scan of states": SCAN,
    "a gated delta net": gated_delta_net(
        leaf(F32, 8, 2, 3),
        leaf(F32, 8, 2, 3),
        leaf(F32, 8, 2, 3),
        leaf(F32, 1, 2, 3),
        leaf(F32, 1, 2, 3),
        leaf(F32, 8, 8, 2),
    ),
    "a copy that changes both strides and shape": build.cpy(
        build.permute(leaf(F32, 4, 6, 2), (1, 0, 2, 3)),
        build.view(leaf(F32, 40, 4), (24, 2), (160,)),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_kernel_computes_is_refused(what):
    assert not RULES.supports_op(REFUSED[what])


def test_only_the_devices_own_memory_is_read():
    assert RULES.supports_buft(BufferTypeFacts("OpenCL0"))
    assert RULES.supports_buft(BufferTypeFacts("OpenCL0_Mapped"))
    assert RULES.supports_buft(BufferTypeFacts("OpenCL0_Split"))
    assert not RULES.supports_buft(BufferTypeFacts("OpenCL1_Split"))
    assert not RULES.supports_buft(BufferTypeFacts("CPU_Mapped", is_host=True))
    assert not RULES.supports_buft(BufferTypeFacts("OpenCL1"))
    assert not RULES.supports_buft(BufferTypeFacts("CPU", is_host=True))


@pytest.mark.parametrize(("n_tokens", "wanted"), [(31, False), (32, True)])
def test_large_batches_are_wanted_from_the_host(n_tokens, wanted):
    node = build.mul_mat(leaf(F32, 64, 64), leaf(F32, 64, n_tokens))

    assert RULES.offload_op(node) is wanted


SPLIT = BufferTypeFacts("OpenCL0_Split", row_shares=RowShares(("OpenCL0", "OpenCL1"), (1.0, 1.0)))


def in_split_memory(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne), buffer=BufferFacts(SPLIT, BufferUsage.WEIGHTS))


def test_from_split_memory_products_of_matrices_are_computed_and_nothing_else():
    x, ids = leaf(F32, 64, 5), leaf(I32, 5)
    three = in_split_memory(F32, 64, 64, 2)

    assert RULES.supports_op(build.mul_mat(in_split_memory(F32, 64, 64), x))
    assert not RULES.supports_op(build.get_rows(in_split_memory(F32, 64, 64), ids))
    assert not RULES.supports_op(build.mul_mat(three, leaf(F32, 64, 5, 2)))
    assert not RULES.supports_op(build.mul_mat_id(three, leaf(F32, 64, 1, 5), leaf(I32, 1, 5)))
    assert not RULES.supports_op(build.binary(Op.MUL, x, in_split_memory(F32, 64)))


def test_a_matrix_of_which_the_device_has_no_rows_is_not_divided():
    """16 rows are all the second device's: the first keeps such a matrix whole."""
    assert not RULES.supports_op(build.mul_mat(in_split_memory(F32, 64, 16), leaf(F32, 64, 5)))
