"""What the CPU says it computes: yes where a kernel exists, no everywhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.backends.cpu.rules import QUANTIZED, CpuRules
from engine.core import build
from engine.core.build_recurrent import gated_delta_net, ssm_conv, ssm_scan
from engine.core.devices import BufferTypeFacts
from engine.core.ops import (
    ROPE_IMROPE,
    FlashAttnParams,
    GluOp,
    GluParams,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64


def leaf(kind: TensorType, *ne: int) -> Tensor:
    return Tensor(kind, shape4(*ne))


def flash(
    k_kind: TensorType = F16,
    v_kind: TensorType = F16,
    mask_kind: TensorType = F16,
    max_bias: float = 0.0,
    head_size: int = 64,
    sinks: Tensor | None = None,
) -> Tensor:
    k, v = leaf(k_kind, head_size, 32, 2), leaf(v_kind, head_size, 32, 2)
    q, mask = leaf(F32, head_size, 5, 4), leaf(mask_kind, 32, 5)
    return build.flash_attn_ext(q, k, v, mask, FlashAttnParams(1.0, max_bias), sinks=sinks)


def experts(kind: TensorType = F32, columns: int = 2, ids_kind: TensorType = I32) -> Tensor:
    weights, ids = leaf(kind, 256, 8, 4), leaf(ids_kind, 2, 3)
    return build.mul_mat_id(weights, leaf(F32, 256, columns, 3), ids)


def copy(source: TensorType, target: TensorType) -> Tensor:
    return build.cpy(leaf(source, 256, 9), leaf(target, 256, 9))


def fused_glu(n_in: int) -> Tensor:
    """SWIGLU of one tensor that holds gate and up."""
    x = leaf(F32, n_in, 3)
    return Tensor(F32, (32, 3, 1, 1), op=Op.GLU, params=GluParams(GluOp.SWIGLU), src=(x,))


def scan(rates: int = 16, groups: int = 2, ids_kind: TensorType = I32) -> Tensor:
    state, x, dt = leaf(F32, 16, 4, 6, 9), leaf(F32, 4, 6, 5, 2), leaf(F32, 6, 5, 2)
    b, c = leaf(F32, 16, groups, 5, 2), leaf(F32, 16, groups, 5, 2)
    return ssm_scan(state, x, dt, leaf(F32, rates, 6), b, c, leaf(ids_kind, 2))


def delta_net(kind: TensorType = F32) -> Tensor:
    q, k, v = (leaf(kind, 16, n, 5, 2) for n in (2, 2, 4))
    gate, beta = leaf(F32, 1, 4, 5, 2), leaf(F32, 1, 4, 5, 2)
    return gated_delta_net(q, k, v, gate, beta, leaf(F32, 16, 16, 4, 2))


def masked(sinks: Tensor) -> Tensor:
    params = SoftMaxParams()
    return build.soft_max(leaf(F32, 9, 3, 4), leaf(F32, 9, 3), params, sinks=sinks)


def four_positions(sections: tuple[int, int, int, int], n_positions: int = 20) -> Tensor:
    params = RopeParams(16, ROPE_IMROPE, sections=sections)
    return build.rope(leaf(F32, 16, 2, 5), leaf(I32, n_positions), None, params)


def shifted(offset: int) -> Tensor:
    params = RopeParams(16, offset=offset)
    return build.rope(leaf(F32, 24, 2, 5), leaf(I32, 5), None, params)


SUPPORTED = {
    "views": build.reshape(leaf(TensorType.Q4_K, 256, 4), 256, 2, 2),
    "q4_1 times f32": build.mul_mat(leaf(TensorType.Q4_1, 64, 8), leaf(F32, 64, 3)),
    "q6_K times f32": build.mul_mat(leaf(TensorType.Q6_K, 256, 8), leaf(F32, 256, 3)),
    "cache view times f32": build.mul_mat(
        build.permute(leaf(F16, 16, 2, 64), (0, 2, 1, 3)),
        build.permute(leaf(F32, 16, 4, 3), (0, 2, 1, 3)),
    ),
    "bias added": build.add(leaf(F32, 64, 3), leaf(F32, 64)),
    "rope neox": build.rope(leaf(F32, 16, 2, 5), leaf(I32, 5), None, RopeParams(16, 2)),
    "rows of q8_0": build.get_rows(leaf(TensorType.Q8_0, 64, 9), leaf(I32, 4)),
    "rows to f16": build.set_rows(leaf(F16, 64, 9), leaf(F32, 64, 4), leaf(I64, 4)),
    "soft max with f32 mask": build.soft_max(leaf(F32, 9, 3), leaf(F32, 9, 32), SoftMaxParams()),
    "soft max alone": build.soft_max(leaf(F32, 9, 3), None, SoftMaxParams()),
    "alibi": build.soft_max(leaf(F32, 9, 3), leaf(F32, 9, 3), SoftMaxParams(1.0, 8.0)),
    "attention": flash(),
    "attention with f32 keys": flash(k_kind=F32),
    "attention with a small cache": flash(k_kind=TensorType.Q5_1, v_kind=TensorType.Q4_0),
    "attention of narrow heads": flash(head_size=24),
    "attention of wide heads": flash(head_size=256),
    "experts": experts(),
    "experts with one column a token": experts(columns=1),
    "a bias of each expert": build.add_id(leaf(F32, 64, 2, 3), leaf(F32, 64, 4), leaf(I32, 2, 3)),
    "argsort": build.argsort(leaf(F32, 9)),
    "sum of rows": build.sum_rows(leaf(F32, 9, 3)),
    "clamp": build.clamp(leaf(F32, 9, 3), 0.0, 1.0),
    "rows of single elements": build.get_rows(leaf(F32, 1, 8, 3), leaf(I32, 2, 3)),
    "copy of blocks": copy(TensorType.IQ2_S, TensorType.IQ2_S),
    "copy to q8_0": copy(F16, TensorType.Q8_0),
    "copy of q6_K to f32": copy(TensorType.Q6_K, F32),
    "rows to q8_0": build.set_rows(leaf(TensorType.Q8_0, 64, 9), leaf(F32, 64, 4), leaf(I64, 4)),
    "gelu": build.unary(leaf(F32, 7), UnaryOp.GELU),
    "softplus": build.unary(leaf(F32, 7), UnaryOp.SOFTPLUS),
    "attention with alibi": flash(max_bias=8.0),
    "attention with sinks": flash(sinks=leaf(F32, 4)),
    "soft max with sinks": masked(leaf(F32, 4)),
    "fused swiglu": fused_glu(64),
    "rope with sections": four_positions((3, 3, 2, 0)),
    "rope with an offset": shifted(8),
    "norm": build.norm(leaf(F32, 9, 3), 1e-5),
    "concat": build.concat(leaf(F32, 9, 3), leaf(F32, 9, 2), 1),
    "integers in a row": build.concat(leaf(I32, 9), leaf(I32, 2), 0),
    "repeat": build.repeat(leaf(F32, 9, 1, 2), 18, 3, 2),
    "fill": build.fill(leaf(F32, 9, 3), 1.0),
    "convolution": ssm_conv(leaf(F32, 8, 32, 2), leaf(F32, 4, 32)),
    "scan of mamba": scan(),
    "scan of mamba 2": scan(rates=1),
    "delta net": delta_net(),
}

UNSUPPORTED = {
    "activations as weights": build.mul_mat(leaf(TensorType.Q8_K, 256, 8), leaf(F32, 256, 3)),
    "integers as weights": build.mul_mat(leaf(TensorType.I8, 256, 8), leaf(F32, 256, 3)),
    "f32 times f16": build.mul_mat(leaf(F32, 64, 8), leaf(F16, 64, 3)),
    "transposed weights": build.mul_mat(build.transpose(leaf(F32, 8, 64)), leaf(F32, 64, 3)),
    "experts picked by i64": experts(ids_kind=I64),
    "f16 added": build.add(leaf(F16, 64), leaf(F16, 64)),
    "rope without sections": four_positions((0, 0, 0, 0)),
    "rope with sections and one position": four_positions((3, 3, 2, 0), n_positions=5),
    "rope of an unknown mode": build.rope(leaf(F32, 16, 2), leaf(I32, 1), None, RopeParams(16, 24)),
    "rope past the end": shifted(16),
    "rope with positions by section": build.rope(
        leaf(F32, 16, 2, 5), leaf(I32, 20), None, RopeParams(16, 2)
    ),
    "rows to q4_K": build.set_rows(leaf(TensorType.Q4_K, 256, 9), leaf(F32, 256, 4), leaf(I64, 4)),
    "copy to q4_K": copy(F32, TensorType.Q4_K),
    "copy of q6_K to f16": copy(TensorType.Q6_K, F16),
    "copy of q8_0 to q4_0": copy(TensorType.Q8_0, TensorType.Q4_0),
    "copy of blocks to another shape": build.cpy(
        leaf(TensorType.Q8_0, 64, 9), leaf(TensorType.Q8_0, 32, 18)
    ),
    "sorted rows with gaps": build.argsort(build.transpose(leaf(F32, 9, 3))),
    "short mask": build.soft_max(leaf(F32, 9, 3), leaf(F32, 9, 2), SoftMaxParams()),
    "attention with q6_K keys": flash(k_kind=TensorType.Q6_K, head_size=256),
    "attention of heads that are no whole blocks": flash(k_kind=TensorType.Q8_0, head_size=48),
    "attention with f32 mask": flash(mask_kind=F32),
    "attention with sinks of other heads": flash(sinks=leaf(F32, 5)),
    "attention with f16 sinks": flash(sinks=leaf(F16, 4)),
    "soft max with sinks of other heads": masked(leaf(F32, 3)),
    "fused swiglu of no halves": fused_glu(65),
    "concat of f16": build.concat(leaf(F16, 9), leaf(F16, 2), 0),
    "concat of two types": build.concat(leaf(F32, 9), leaf(I32, 2), 0),
    "repeat of f16": build.repeat(leaf(F16, 9), 18),
    "fill of integers": build.fill(leaf(I32, 9, 3), 1.0),
    "f16 normed": build.norm(leaf(F16, 9, 3), 1e-5),
    "convolution with f16": ssm_conv(leaf(F32, 8, 32, 2), leaf(F16, 4, 32)),
    "scan of groups that heads do not fill": scan(groups=4),
    "scan with some rates": scan(rates=8),
    "scan picked by i64": scan(ids_kind=I64),
    "delta net of f16": delta_net(F16),
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_operations_with_a_kernel_are_supported(name):
    assert CpuRules().supports_op(SUPPORTED[name])


@pytest.mark.parametrize("kind", sorted(QUANTIZED), ids=lambda kind: kind.label)
def test_weights_of_every_type_are_supported(kind):
    rules, weight = CpuRules(), leaf(kind, 256, 8)

    assert rules.supports_op(build.mul_mat(weight, leaf(F32, 256, 3)))
    assert rules.supports_op(build.get_rows(weight, leaf(I32, 4)))
    assert rules.supports_op(experts(kind))


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_operations_without_a_kernel_are_refused(name):
    assert not CpuRules().supports_op(UNSUPPORTED[name])


def test_any_host_memory_is_used_directly_and_no_other():
    rules = CpuRules()

    assert rules.supports_buft(BufferTypeFacts("CPU_Mapped", is_host=True))
    assert not rules.supports_buft(BufferTypeFacts("OpenCL0"))


def test_the_cpu_never_asks_for_weights_of_other_devices():
    assert not CpuRules().offload_op(SUPPORTED["q4_1 times f32"])


def test_planning_needs_no_compiler():
    """Registration and rules are imported at the start of the program."""
    code = (
        "import sys, engine.backends.cpu.reg as reg, engine.backends.cpu.rules\n"
        "reg.create().devices()[0].buffer_type()\n"
        "print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
