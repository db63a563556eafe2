"""Every kernel by name: what the op table points at and what warming up compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.cpu.kernels.elementwise import binary, scale, swiglu, unary
from engine.backends.cpu.kernels.flash_attn import flash_attn
from engine.backends.cpu.kernels.matmul_float import mul_mat_float
from engine.backends.cpu.kernels.matmul_quant import mul_mat_quant
from engine.backends.cpu.kernels.norm import rms_norm, soft_max
from engine.backends.cpu.kernels.quantize import quantize
from engine.backends.cpu.kernels.rope import rope, rope_angles
from engine.backends.cpu.kernels.rows import copy, get_rows, set_rows

if TYPE_CHECKING:
    from engine.backends.cpu.jit import Kernel

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        get_rows,
        rms_norm,
        binary,
        quantize,
        mul_mat_quant,
        mul_mat_float,
        rope_angles,
        rope,
        set_rows,
        copy,
        soft_max,
        flash_attn,
        swiglu,
        unary,
        scale,
    )
}
