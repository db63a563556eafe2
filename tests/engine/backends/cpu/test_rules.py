"""What the CPU says it computes: yes where a kernel exists, no everywhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.backends.cpu.rules import CpuRules
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.ops import (
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


def flash(k_kind: TensorType = F16, mask_kind: TensorType = F16, max_bias: float = 0.0) -> Tensor:
    k, v, mask = leaf(k_kind, 64, 32, 2), leaf(F16, 64, 32, 2), leaf(mask_kind, 32, 5)
    return build.flash_attn_ext(leaf(F32, 64, 5, 4), k, v, mask, FlashAttnParams(1.0, max_bias))


def fused_glu() -> Tensor:
    """SWIGLU of one tensor that holds gate and up."""
    x = leaf(F32, 64, 3)
    return Tensor(F32, (32, 3, 1, 1), op=Op.GLU, params=GluParams(GluOp.SWIGLU), src=(x,))


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
    "attention": flash(),
    "gelu": build.unary(leaf(F32, 7), UnaryOp.GELU),
}

UNSUPPORTED = {
    "q4_K times f32": build.mul_mat(leaf(TensorType.Q4_K, 256, 8), leaf(F32, 256, 3)),
    "f32 times f16": build.mul_mat(leaf(F32, 64, 8), leaf(F16, 64, 3)),
    "transposed weights": build.mul_mat(build.transpose(leaf(F32, 8, 64)), leaf(F32, 64, 3)),
    "experts": build.mul_mat_id(leaf(F32, 64, 8, 4), leaf(F32, 64, 2, 3), leaf(I32, 2, 3)),
    "f16 added": build.add(leaf(F16, 64), leaf(F16, 64)),
    "rope with sections": build.rope(leaf(F32, 16, 2, 5), leaf(I32, 5), None, RopeParams(16, 8)),
    "rope with positions by section": build.rope(
        leaf(F32, 16, 2, 5), leaf(I32, 20), None, RopeParams(16, 2)
    ),
    "rows of q4_K": build.get_rows(leaf(TensorType.Q4_K, 256, 9), leaf(I32, 4)),
    "rows to q8_0": build.set_rows(leaf(TensorType.Q8_0, 64, 9), leaf(F32, 64, 4), leaf(I64, 4)),
    "copy to q8_0": build.cpy(leaf(F32, 64, 9), leaf(TensorType.Q8_0, 64, 9)),
    "alibi": build.soft_max(leaf(F32, 9, 3), leaf(F32, 9, 3), SoftMaxParams(1.0, 8.0)),
    "short mask": build.soft_max(leaf(F32, 9, 3), leaf(F32, 9, 2), SoftMaxParams()),
    "attention with f32 keys": flash(k_kind=F32),
    "attention with f32 mask": flash(mask_kind=F32),
    "attention with alibi": flash(max_bias=8.0),
    "fused swiglu": fused_glu(),
    "argsort": build.argsort(leaf(F32, 9)),
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_operations_with_a_kernel_are_supported(name):
    assert CpuRules().supports_op(SUPPORTED[name])


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
