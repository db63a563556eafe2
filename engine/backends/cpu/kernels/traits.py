"""What each type brings to the kernels that work on all: conversions, and products where fast.

A type without `dot` or `panel` takes the plain way: its rows become floats, then products of
floats. Nothing compiles before its address is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backends.cpu.kernels import convert, convert_iq, convert_k, dot_rows, unpack
from engine.core.types import TensorType as T

if TYPE_CHECKING:
    from engine.backends.cpu.jit import Kernel


@dataclass(frozen=True, slots=True)
class Traits:
    """Kernels of one type.

    `to_float` and `from_float`: (target, source, elements). `dot`: see dot_rows.py; `panel`: see
    unpack.py. `rounding` is what activations are rounded to before, as ggml's CPU does (its
    vec_dot_type); f32 where they stay as they are.
    """

    to_float: Kernel
    from_float: Kernel | None = None
    dot: Kernel | None = None
    panel: Kernel | None = None
    rounding: T = T.F32


TRAITS: dict[T, Traits] = {
    T.F32: Traits(convert.f32_to_f32, convert.f32_to_f32, dot_rows.f32_dot, unpack.f32_pack),
    T.F16: Traits(convert.f16_to_f32, convert.f32_to_f16, dot_rows.f16_dot, unpack.f16_pack, T.F16),
    T.BF16: Traits(convert.bf16_to_f32, convert.f32_to_bf16, dot_rows.bf16_dot, None, T.BF16),
    T.Q4_0: Traits(
        convert.q4_0_to_f32, convert.f32_to_q4_0, dot_rows.q4_0_dot, unpack.q4_0_unpack, T.Q8_0
    ),
    T.Q4_1: Traits(
        convert.q4_1_to_f32, convert.f32_to_q4_1, dot_rows.q4_1_dot, unpack.q4_1_unpack, T.Q8_1
    ),
    T.Q5_0: Traits(
        convert.q5_0_to_f32, convert.f32_to_q5_0, dot_rows.q5_0_dot, unpack.q5_0_unpack, T.Q8_0
    ),
    T.Q5_1: Traits(
        convert.q5_1_to_f32, convert.f32_to_q5_1, dot_rows.q5_1_dot, unpack.q5_1_unpack, T.Q8_1
    ),
    T.Q8_0: Traits(
        convert.q8_0_to_f32, convert.f32_to_q8_0, dot_rows.q8_0_dot, unpack.q8_0_unpack, T.Q8_0
    ),
    T.Q4_K: Traits(convert_k.q4_k_to_f32, None, dot_rows.q4_k_dot, unpack.q4_k_unpack, T.Q8_K),
    T.Q5_K: Traits(convert_k.q5_k_to_f32, None, dot_rows.q5_k_dot, unpack.q5_k_unpack, T.Q8_K),
    T.Q6_K: Traits(convert_k.q6_k_to_f32, None, dot_rows.q6_k_dot, unpack.q6_k_unpack, T.Q8_K),
    T.Q2_K: Traits(convert_k.q2_k_to_f32, None, dot_rows.q2_k_dot, unpack.q2_k_unpack, T.Q8_K),
    T.Q3_K: Traits(convert_k.q3_k_to_f32, None, dot_rows.q3_k_dot, unpack.q3_k_unpack, T.Q8_K),
    T.TQ1_0: Traits(convert_k.tq1_0_to_f32),
    T.TQ2_0: Traits(convert_k.tq2_0_to_f32),
    T.IQ1_S: Traits(convert_iq.iq1_s_to_f32),
    T.IQ1_M: Traits(convert_iq.iq1_m_to_f32),
    T.IQ2_XXS: Traits(convert_iq.iq2_xxs_to_f32),
    T.IQ2_XS: Traits(convert_iq.iq2_xs_to_f32),
    T.IQ2_S: Traits(convert_iq.iq2_s_to_f32),
    T.IQ3_XXS: Traits(convert_iq.iq3_xxs_to_f32),
    T.IQ3_S: Traits(convert_iq.iq3_s_to_f32),
    T.IQ4_NL: Traits(
        convert_iq.iq4_nl_to_f32, None, dot_rows.iq4_nl_dot, unpack.iq4_nl_unpack, T.Q8_0
    ),
    T.IQ4_XS: Traits(
        convert_iq.iq4_xs_to_f32, None, dot_rows.iq4_xs_dot, unpack.iq4_xs_unpack, T.Q8_K
    ),
    T.MXFP4: Traits(convert_iq.mxfp4_to_f32, None, dot_rows.mxfp4_dot, unpack.mxfp4_unpack, T.Q8_0),
    T.NVFP4: Traits(convert_iq.nvfp4_to_f32),
    T.Q1_0: Traits(convert_iq.q1_0_to_f32),
}
