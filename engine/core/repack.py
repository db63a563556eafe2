"""CPU_REPACK, the CPU's extra memory for weights, and which products may read it.

A weight there has its rows interleaved; how is the CPU backend's own business. Which weights go
there is ggml's rule, since a plan must place them where llama.cpp does:

    takes_repacked(weight, product, frozenset({"AVX2"}))     # q4_0 [64, 8], MUL_MAT: True

Features carry the names that ggml prints, such as AVX2 or MATMUL_INT8; one that ggml prints with a
value is written with it, such as SVE_CNT=32. Source: ggml-cpu/repack.cpp, the buffer type's
supports_op and the choice of a layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.core.devices import BufferTypeFacts
from engine.core.ops import Op
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

CPU_REPACK = BufferTypeFacts("CPU_REPACK", alignment=32, is_host=False)
"""Not host memory: nobody but the CPU's products understands the bytes."""

RECORDED_FEATURES = frozenset(
    {"SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2"}
    | {"AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"}
)
"""A present x86 server: what a CPU that exists only on paper has."""


class Layout(NamedTuple):
    """A layout exists when all `needs` are there and the rows are a multiple of `n_rows`."""

    needs: frozenset[str]
    n_rows: int


def _layout(n_rows: int, *needs: str) -> Layout:
    return Layout(frozenset(needs), n_rows)


_AVX2 = _layout(8, "AVX2")
_INT8_BY_8 = _layout(8, "NEON", "MATMUL_INT8")
_DOT_BY_8 = _layout(8, "NEON", "DOTPROD")
_INT8_BY_4 = _layout(4, "NEON", "MATMUL_INT8")
_DOT_BY_4 = _layout(4, "NEON", "DOTPROD")

LAYOUTS: dict[TensorType, tuple[Layout, ...]] = {
    TensorType.Q4_0: (
        _AVX2,
        _layout(8, "SVE", "SVE_CNT=32", "MATMUL_INT8"),
        _INT8_BY_4,
        _DOT_BY_4,
    ),
    TensorType.Q4_K: (_AVX2, _INT8_BY_8, _DOT_BY_8),
    TensorType.Q2_K: (_layout(8, "AVX512"),),
    TensorType.Q5_K: (_INT8_BY_8, _DOT_BY_8),
    TensorType.Q6_K: (_INT8_BY_8, _DOT_BY_8),
    TensorType.IQ4_NL: (_AVX2, _DOT_BY_4),
    TensorType.MXFP4: (_AVX2, _DOT_BY_4),
    TensorType.Q8_0: (_INT8_BY_4, _DOT_BY_4),
}
"""Layouts of a type on x86 and ARM, one that fits is enough; ggml has a few for others too."""

_N_DIMS = {Op.MUL_MAT: 2, Op.MUL_MAT_ID: 3}


def takes_repacked(weight: Tensor, op: Tensor, features: frozenset[str]) -> bool:
    """Whether the CPU computes `op` with `weight`, its first source, in CPU_REPACK.

    That is a product with a matrix, or with a stack of matrices chosen by ids, whose other
    operand is f32 in host memory or has no memory yet, when a layout exists for the type on a
    processor with these features.
    """
    if _N_DIMS.get(op.op) != _n_dims(weight):
        return False
    x = op.src[1]
    is_readable = x.home is None or x.home.buft.is_host
    return x.type is TensorType.F32 and is_readable and has_layout(weight, features)


def reads_repacked(op: Tensor) -> bool:
    """Whether a source of `op` lies in CPU_REPACK."""
    return any(_lies_there(source) for source in op.src)


def supports_repacked(op: Tensor, features: frozenset[str]) -> bool:
    """Whether the CPU computes `op`, one of whose sources lies in CPU_REPACK."""
    weight = op.src[0]
    return _lies_there(weight) and takes_repacked(weight, op, features)


def _lies_there(tensor: Tensor) -> bool:
    return tensor.home is not None and tensor.home.buft.name == CPU_REPACK.name


def has_layout(weight: Tensor, features: frozenset[str]) -> bool:
    """Whether ggml has an interleaved layout for the type and the number of rows."""
    return any(
        layout.needs <= features and weight.ne[1] % layout.n_rows == 0
        for layout in LAYOUTS.get(weight.type, ())
    )


def _n_dims(tensor: Tensor) -> int:
    """Count dimensions as ggml does: up to the last that is more than one."""
    return max((i + 1 for i in range(1, 4) if tensor.ne[i] > 1), default=1)
