"""Every kernel by name: what the op table points at, and what warming up compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.cpu.kernels.activations import softplus, swiglu_oai
from engine.backends.cpu.kernels.arrange import concat, fill, repeat
from engine.backends.cpu.kernels.elementwise import add_id, binary, clamp, glu, scale, unary
from engine.backends.cpu.kernels.experts import gather_columns, group_experts
from engine.backends.cpu.kernels.flash_attn import flash_attn
from engine.backends.cpu.kernels.matmul import mul_mat, mul_mat_id
from engine.backends.cpu.kernels.norm import norm, rms_norm, soft_max, sum_rows
from engine.backends.cpu.kernels.products import float_product, quant_product
from engine.backends.cpu.kernels.quantize import quantize
from engine.backends.cpu.kernels.recurrent import gated_delta_net, ssm_conv, ssm_scan
from engine.backends.cpu.kernels.rope import rope, rope_angles, rope_angles_sections
from engine.backends.cpu.kernels.rows import copy, get_rows, pad, set_rows
from engine.backends.cpu.kernels.sort import argsort
from engine.backends.cpu.kernels.traits import TRAITS
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backends.cpu.jit import Kernel

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        get_rows,
        rms_norm,
        binary,
        quantize,
        mul_mat,
        quant_product,
        float_product,
        rope_angles,
        rope,
        set_rows,
        copy,
        soft_max,
        flash_attn,
        glu,
        unary,
        scale,
        clamp,
        sum_rows,
        argsort,
        add_id,
        pad,
        group_experts,
        gather_columns,
        mul_mat_id,
        norm,
        concat,
        repeat,
        fill,
        softplus,
        swiglu_oai,
        rope_angles_sections,
        ssm_conv,
        ssm_scan,
        gated_delta_net,
    )
}

_SELDOM = (
    *(clamp, sum_rows, argsort, add_id, pad, group_experts, gather_columns, mul_mat_id),
    *(norm, concat, repeat, fill, softplus, swiglu_oai, rope_angles_sections),
    *(ssm_conv, ssm_scan, gated_delta_net),
)
_COMMON = (
    TensorType.F32,
    TensorType.F16,
    TensorType.Q8_0,
    TensorType.Q4_0,
    TensorType.Q4_1,
    TensorType.Q5_0,
    TensorType.Q4_K,
    TensorType.Q6_K,
)


def warm_up() -> dict[str, Kernel]:
    """What most models need, by name; the rest compiles when it is first met."""
    chosen = {name: kernel for name, kernel in KERNELS.items() if kernel not in _SELDOM}
    for tensor_type in _COMMON:
        traits = TRAITS[tensor_type]
        parts = (traits.to_float, traits.dot, traits.panel)
        chosen.update({part.name: part for part in parts if part is not None})
    chosen["f32_to_f16"] = _written(TensorType.F16)
    return chosen


def _written(tensor_type: TensorType) -> Kernel:
    kernel = TRAITS[tensor_type].from_float
    assert kernel is not None, tensor_type
    return kernel
