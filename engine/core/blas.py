"""ggml's rule which products go to BLAS. Source: SCHED.md 4 (ggml-blas.cpp, supports_op)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ops import Op
from engine.core.quants import READABLE
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

MIN_SIDE = 32
"""A product with a side below this is not worth BLAS."""


def takes_blas(tensor: Tensor) -> bool:
    """Whether it is a product of matrices without gaps that is large enough."""
    if tensor.op is not Op.MUL_MAT:
        return False
    weight, x = tensor.src
    return (
        weight.is_contiguous
        and x.is_contiguous
        and x.type is TensorType.F32
        and weight.type in READABLE
        and min(tensor.ne[0], tensor.ne[1], x.ne[0]) >= MIN_SIDE
    )
