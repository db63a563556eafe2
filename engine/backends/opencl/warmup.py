"""One small sample of every kernel: built and run before a person waits for it.

Drivers compile twice: a program when it is built, and a kernel when it first runs (PoCL). Both are
cached on disk by the driver and by pyopencl, so this takes long only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backend.interface import Place, SplitGraph
from engine.backends.opencl.rules import FLOAT_TYPES, WEIGHT_TYPES
from engine.core import build
from engine.core.ops import FlashAttnParams, GluOp, Op, RopeParams, SoftMaxParams, UnaryOp
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.backends.opencl.backend import OpenClBackend

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
STEP_BYTES = 128 << 10
"""Room for each tensor of a sample."""
MAX_TENSORS = 6
ROW = 32
"""Elements in a row of a sample; types with longer blocks have one block."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A node that makes one kernel run, and its name for the progress row."""

    label: str
    node: Tensor


def warm_up(
    backend: OpenClBackend, on_progress: Callable[[int, int, str], None] | None = None
) -> None:
    """Run every sample; `on_progress(done, total, label)` before each and once at the end.

    Raises: DeviceError when a program cannot be built.
    """
    every = tuple(samples())
    buffer = backend.device.buffer_type().alloc_buffer(STEP_BYTES * MAX_TENSORS)
    try:
        buffer.clear(0)
        for i_sample, sample in enumerate(every):
            if on_progress is not None:
                on_progress(i_sample, len(every), sample.label)
            tensors = (*sample.node.src, sample.node)
            owners = dict.fromkeys(t if t.view_src is None else t.view_src for t in tensors)
            places = {t: Place(buffer, STEP_BYTES * i) for i, t in enumerate(owners)}
            backend.graph_compute(SplitGraph((sample.node,), places))
            backend.synchronize()
    finally:
        buffer.release()
    if on_progress is not None:
        on_progress(len(every), len(every), "")


def samples() -> Iterator[Sample]:
    """A node for every kernel."""
    for node in (*_elementwise(), *_rows(), *_matrices()):
        source_types = [t.type.label for t in node.src[:1]]
        yield Sample(" ".join([node.op_desc, *source_types]), node)


def _elementwise() -> Iterator[Tensor]:
    a, b = _leaf(F32, ROW, 2), _leaf(F32, ROW, 2)
    for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
        yield build.binary(op, a, b)
    yield build.scale(a, 1.0)
    yield build.unary(a, UnaryOp.SILU)
    yield build.unary(a, UnaryOp.GELU)
    yield build.glu_split(a, b, GluOp.SWIGLU)
    for source_type in FLOAT_TYPES:
        for target_type in FLOAT_TYPES:
            yield build.cpy(_leaf(source_type, ROW, 2), _leaf(target_type, ROW, 2))


def _rows() -> Iterator[Tensor]:
    x, ids = _leaf(F32, ROW, 2), _leaf(I32, 2)
    yield build.rms_norm(x, 1e-5)
    yield build.soft_max(x, None, SoftMaxParams())
    for mask_type in FLOAT_TYPES:
        yield build.soft_max(x, _leaf(mask_type, ROW, 2), SoftMaxParams())
    yield build.rope(_leaf(F32, ROW, 1, 2), ids, None, RopeParams(n_dims=ROW))
    for table_type in WEIGHT_TYPES:
        yield build.get_rows(_leaf(table_type, _row(table_type), 2), ids)
    for table_type in FLOAT_TYPES:
        for id_type in (I32, I64):
            yield build.set_rows(_leaf(table_type, ROW, 2), x, _leaf(id_type, 2))


def _matrices() -> Iterator[Tensor]:
    for weight_type in WEIGHT_TYPES:
        row = _row(weight_type)
        for n_columns in (1, 8):
            yield build.mul_mat(_leaf(weight_type, row, 4), _leaf(F32, row, n_columns))
    q, mask = _leaf(F32, ROW, 2, 1), _leaf(F16, 8, 2)
    for cache_type in FLOAT_TYPES:
        cache = _leaf(cache_type, ROW, 8, 1)
        yield build.flash_attn_ext(q, cache, cache, mask, FlashAttnParams())


def _row(tensor_type: TensorType) -> int:
    """Elements in a row of this type: whole blocks."""
    return max(ROW, tensor_type.block_elems)


def _leaf(tensor_type: TensorType, *ne: int) -> Tensor:
    return Tensor(tensor_type, shape4(*ne))
