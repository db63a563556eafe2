"""Which products this backend takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.blas import takes_blas
from engine.core.ops import EMPTY_OPS
from engine.core.options import BlasUse
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.core.devices import BufferTypeFacts
    from engine.core.tensor import Tensor

MIN_COLUMNS = {TensorType.F32: 256, TensorType.F16: 512, TensorType.BF16: 512}
"""Columns from which BLAS is faster than the CPU backend's own kernels, by type of the weight.

Measured with tests/bench/bench_blas.py, on one thread and on two. Other types never are: those
kernels multiply them as whole numbers of 8 bits, and BLAS needs them unpacked first.
"""


@dataclass(frozen=True, slots=True)
class BlasRules:
    """ggml's rule; with AUTO only the products of it that are faster here."""

    use: BlasUse

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether it is a product to take; NONE and view operations always are."""
        if tensor.op in EMPTY_OPS:
            return True
        return takes_blas(tensor) and (self.use is BlasUse.ALL or _is_faster(tensor))

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether it is host memory."""
        return buft.is_host

    def offload_op(self, tensor: Tensor) -> bool:
        """Never: all it reads is in host memory already."""
        del tensor
        return False


def _is_faster(product: Tensor) -> bool:
    least = MIN_COLUMNS.get(product.src[0].type)
    return least is not None and product.ne[1] >= least
