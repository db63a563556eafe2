"""Types whose rows kernels read: one table, from which programs, rules and the warm-up follow.

A type needs values8_T in its .cl file and gets MUL_MAT, MUL_MAT_ID and GET_ROWS from that; one
that also has add_block_T there multiplies straight from its blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.core.types import TensorType


class Rounding(NamedTuple):
    """A kernel of round_rows.cl, the length of its blocks, and whether it leaves whole numbers."""

    kernel: str
    block: int
    is_whole: bool = False


class Reader(NamedTuple):
    """How rows of a type are read.

    `file` is the .cl file with values8_T. `has_add_block`: it has add_block_T, the fast product.
    `rounding` is what ggml's CPU does to the activations of a matmul with such weights. `whole` is
    the same kept as whole numbers, where the type has add_whole_T (whole.cl): for CPU devices.
    """

    file: str
    has_add_block: bool = False
    rounding: Rounding | None = None
    whole: Rounding | None = None


_BY_32 = Rounding("round_rows_q8_0", 32)
_BY_256 = Rounding("round_rows_q8_k", 256)
_WHOLE_32 = Rounding("whole_rows_q8_0", 32, is_whole=True)
_WHOLE_256 = Rounding("whole_rows_q8_k", 256, is_whole=True)

READERS: dict[TensorType, Reader] = {
    TensorType.F32: Reader("plain"),
    TensorType.F16: Reader("plain", rounding=Rounding("round_rows_f16", 1)),
    TensorType.BF16: Reader("plain", rounding=Rounding("round_rows_bf16", 1)),
    TensorType.Q8_0: Reader("blocks32", has_add_block=True, rounding=_BY_32, whole=_WHOLE_32),
    TensorType.Q4_0: Reader("blocks32", has_add_block=True, rounding=_BY_32, whole=_WHOLE_32),
    TensorType.Q4_1: Reader("blocks32", has_add_block=True, rounding=_BY_32, whole=_WHOLE_32),
    TensorType.Q5_0: Reader("blocks32", has_add_block=True, rounding=_BY_32, whole=_WHOLE_32),
    TensorType.Q5_1: Reader("blocks32", has_add_block=True, rounding=_BY_32, whole=_WHOLE_32),
    TensorType.MXFP4: Reader("blocks32", rounding=_BY_32),
    TensorType.IQ4_NL: Reader("blocks32", rounding=_BY_32),
    TensorType.Q2_K: Reader("blocks256", rounding=_BY_256),
    TensorType.Q3_K: Reader("blocks256", rounding=_BY_256),
    TensorType.Q4_K: Reader("blocks256", has_add_block=True, rounding=_BY_256, whole=_WHOLE_256),
    TensorType.Q5_K: Reader("blocks256", has_add_block=True, rounding=_BY_256, whole=_WHOLE_256),
    TensorType.Q6_K: Reader("blocks256", rounding=_BY_256, whole=_WHOLE_256),
}
"""Every type that a weight may have."""

CACHE_TYPES = (
    *(TensorType.F32, TensorType.F16, TensorType.BF16),
    *(TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1),
    TensorType.IQ4_NL,
)
"""Types that SET_ROWS writes and attention reads."""
