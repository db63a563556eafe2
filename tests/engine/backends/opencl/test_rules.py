"""Rules without a device."""

from __future__ import annotations

import pytest

from engine.backends.opencl.encode import ENCODERS, ROUNDINGS
from engine.backends.opencl.rules import SUPPORTED, WEIGHT_TYPES, OpenClRules
from engine.backends.opencl.warmup import samples
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.ops import FlashAttnParams, Op, RopeParams, SoftMaxParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
Q8_0 = TensorType.Q8_0
RULES = OpenClRules("OpenCL0")


def leaf(tensor_type: TensorType, *ne: int) -> Tensor:
    return Tensor(tensor_type, shape4(*ne))


def test_every_rule_has_a_kernel_and_every_kernel_a_rule():
    assert set(SUPPORTED) == set(ENCODERS)


def test_every_sample_of_the_warm_up_is_supported():
    assert all(RULES.supports_op(sample.node) for sample in samples())


def test_the_warm_up_covers_every_operation():
    assert {sample.node.op for sample in samples()} >= set(SUPPORTED) - {Op.CONT}


def test_every_quantised_weight_type_has_its_rounding():
    assert set(ROUNDINGS) == {t for t in WEIGHT_TYPES if t.is_quantized}


def test_views_are_always_supported():
    assert RULES.supports_op(build.reshape(leaf(TensorType.Q4_K, 256, 2), 512))


REFUSED = {
    "a weight type without a kernel": build.mul_mat(leaf(TensorType.Q4_K, 256, 4), leaf(F32, 256)),
    "half float activations": build.mul_mat(leaf(F32, 8, 4), leaf(F16, 8, 2)),
    "a transposed weight": build.mul_mat(build.transpose(leaf(F16, 4, 8)), leaf(F32, 8)),
    "an operation without a kernel": build.argsort(leaf(F32, 8)),
    "half float sums": build.add(leaf(F16, 8), leaf(F16, 8)),
    "a transposed source": build.scale(build.transpose(leaf(F32, 4, 8)), 2.0),
    "a rope over sections": build.rope(
        leaf(F32, 64, 2, 3), leaf(I32, 3), None, RopeParams(n_dims=64, mode=8)
    ),
    "alibi": build.soft_max(leaf(F32, 8, 2), leaf(F32, 8, 2), SoftMaxParams(max_bias=8.0)),
    "heads that are no multiple of 8": build.flash_attn_ext(
        leaf(F32, 12, 2, 1), leaf(F16, 12, 5, 1), leaf(F16, 12, 5, 1), None, FlashAttnParams()
    ),
    "heads longer than 256": build.flash_attn_ext(
        leaf(F32, 512, 2, 1), leaf(F16, 512, 5, 1), leaf(F16, 512, 5, 1), None, FlashAttnParams()
    ),
    "a quantised cache": build.flash_attn_ext(
        leaf(F32, 64, 2, 1), leaf(Q8_0, 64, 5, 1), leaf(Q8_0, 64, 5, 1), None, FlashAttnParams()
    ),
    "rows into a quantised table": build.set_rows(
        leaf(Q8_0, 32, 4), leaf(F32, 32, 2), leaf(I64, 2)
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
    assert not RULES.supports_buft(BufferTypeFacts("OpenCL1"))
    assert not RULES.supports_buft(BufferTypeFacts("CPU", is_host=True))


@pytest.mark.parametrize(("n_tokens", "wanted"), [(31, False), (32, True)])
def test_large_batches_are_wanted_from_the_host(n_tokens, wanted):
    node = build.mul_mat(leaf(F32, 64, 64), leaf(F32, 64, n_tokens))

    assert RULES.offload_op(node) is wanted
