"""One small sample of every kernel: built and run before a run needs it.

Drivers compile twice: a program when it is built, and a kernel when it first runs (PoCL). Both are
cached on disk by the driver and by pyopencl, so this takes long only once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backend.interface import Place, SplitGraph
from engine.backends.opencl.encode import GLU_KERNELS, UNARY_KERNELS
from engine.backends.opencl.encode_attention import DOT_STEP, MAX_HEAD
from engine.backends.opencl.readers import CACHE_TYPES, READERS
from engine.backends.opencl.rules import FLOAT_TYPES
from engine.backends.opencl.split import encode_split
from engine.backends.opencl.steps import is_suitable, runs_of, step_kernel
from engine.core import build
from engine.core.ops import FlashAttnParams, Op, RopeParams, SoftMaxParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from engine.backend.interface import Buffer
    from engine.backends.opencl.arguments import KernelCall
    from engine.backends.opencl.backend import OpenClBackend
    from engine.backends.opencl.tuning import Tuning

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
STEP_BYTES = 128 << 10
"""Room for each tensor of a sample."""
MAX_TENSORS = 6
ROW = 32
"""Elements in a row of a sample; types with longer blocks have one block."""

LONG_HEAD = MAX_HEAD + ROW
ONE_HEAD, LONG_ONE_HEAD = DOT_STEP, MAX_HEAD + DOT_STEP
"""Heads of a single query, which has a kernel of its own on some devices."""

KernelKey = tuple[tuple[str, str], str]
"""A program and one of its kernels."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Nodes that make one kernel run, which kernel that is, and its name for the progress row."""

    nodes: tuple[Tensor, ...]
    kernel: KernelKey
    label: str


def warm_up(
    backend: OpenClBackend,
    on_progress: Callable[[int, int, str], None] | None = None,
    *,
    nodes: Iterable[Tensor] | None = None,
) -> None:
    """Run a sample of every kernel, or of those that `nodes` need.

    `on_progress(done, total, label)` is called before each and once at the end.

    Raises: DeviceError when a program cannot be built.
    """
    tell = on_progress or _tell_nobody
    buffer = backend.device.buffer_type().alloc_buffer(STEP_BYTES * MAX_TENSORS)
    try:
        buffer.clear(0)
        chosen = _samples(backend.device.tuning, Place(buffer, 0))
        steps: tuple[KernelCall, ...] = ()
        if nodes is not None:
            calls = _needed(backend, nodes, Place(buffer, 0))
            needed = {(call.program, call.kernel) for call in calls}
            chosen = {kernel: sample for kernel, sample in chosen.items() if kernel in needed}
            steps = _steps(backend, calls)
        total = len(chosen) + (1 if steps else 0)
        for i_sample, sample in enumerate(chosen.values()):
            tell(i_sample, total, sample.label)
            _run(backend, sample.nodes, buffer)
        if steps:
            tell(len(chosen), total, "the operations of a token together")
            backend.try_steps(steps)
    finally:
        buffer.release()
    tell(total, total, "")


def _tell_nobody(done: int, total: int, label: str) -> None:
    """Where nobody listens."""


def _run(backend: OpenClBackend, nodes: tuple[Tensor, ...], buffer: Buffer) -> None:
    tensors = (t for node in nodes for t in (*node.src, node))
    owners = dict.fromkeys(t.base for t in tensors)
    places = {t: Place(buffer, STEP_BYTES * i) for i, t in enumerate(owners)}
    backend.graph_compute(SplitGraph(nodes, places))
    backend.synchronize()


def _needed(backend: OpenClBackend, nodes: Iterable[Tensor], anywhere: Place) -> list[KernelCall]:
    """The launches of those of `nodes` that the device computes."""
    device = backend.device
    supports_op = device.facts.rules.supports_op
    computed = [node for node in nodes if supports_op(node)]
    return _calls(computed, device.tuning, anywhere)


def _steps(backend: OpenClBackend, calls: Sequence[KernelCall]) -> tuple[KernelCall, ...]:
    """A launch of every kernel that may be a step, if any of `calls` become steps.

    Not only of those that do: where a split ends decides what else is launched by itself.
    """
    if not backend.device.tuning.steps or all(len(run) == 1 for run in runs_of(calls)):
        return ()
    return tuple({step_kernel(call): call for call in calls if is_suitable(call)}.values())


def _samples(tuning: Tuning, anywhere: Place) -> dict[KernelKey, Sample]:
    """A sample for every kernel that a device of this kind uses."""
    chosen: dict[KernelKey, Sample] = {}
    for nodes in (*((node,) for node in sample_nodes()), _chain()):
        call = _calls(nodes, tuning, anywhere)[-1]
        kernel = (call.program, call.kernel)
        types = call.program[1] or nodes[0].src[0].type.label
        chosen.setdefault(kernel, Sample(nodes, kernel, f"{nodes[-1].op_desc} {types}"))
    return chosen


def _calls(nodes: Sequence[Tensor], tuning: Tuning, anywhere: Place) -> list[KernelCall]:
    """The launches of `nodes`: the last one gives the result, rounding comes before it."""
    return list(encode_split(nodes, lambda _: anywhere, tuning, lambda _: anywhere))


def sample_nodes() -> Iterator[Tensor]:
    """Nodes that need every kernel, on devices of any kind."""
    yield from _elementwise()
    yield from _rows()
    for weight_type in READERS:
        yield from _products(weight_type)
    for cache_type in CACHE_TYPES:
        yield from _set_rows(cache_type)
    for k_type, v_type in itertools.product(CACHE_TYPES, CACHE_TYPES):
        for head, n_queries in ((ROW, 2), (LONG_HEAD, 2), (ONE_HEAD, 1), (LONG_ONE_HEAD, 1)):
            q, mask = _leaf(F32, head, n_queries, 1), _leaf(F16, 8, n_queries)
            k, v = _leaf(k_type, head, 8, 1), _leaf(v_type, head, 8, 1)
            yield build.flash_attn_ext(q, k, v, mask, FlashAttnParams())


def _elementwise() -> Iterator[Tensor]:
    a, b = _leaf(F32, ROW, 2), _leaf(F32, ROW, 2)
    for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
        yield build.binary(op, a, b)
    yield build.add_id(a, b, _leaf(I32, 2))
    yield build.scale(a, 1.0)
    yield build.clamp(a, 0.0, 1.0)
    yield build.fill(a, 0.0)
    yield build.concat(a, b, 0)
    yield build.repeat(a, ROW, 4)
    yield build.pad(a, ROW)
    for unary in UNARY_KERNELS:
        yield build.unary(a, unary)
    for glu in GLU_KERNELS:
        yield build.glu_split(a, b, glu)
    for source_type, target_type in itertools.product(FLOAT_TYPES, FLOAT_TYPES):
        yield build.cpy(_leaf(source_type, ROW, 2), _leaf(target_type, ROW, 2))


def _rows() -> Iterator[Tensor]:
    x, ids = _leaf(F32, ROW, 2), _leaf(I32, 2)
    yield build.norm(x, 1e-5)
    yield build.rms_norm(x, 1e-5)
    yield build.sum_rows(x)
    yield build.argsort(x)
    yield build.soft_max(x, None, SoftMaxParams())
    for mask_type in FLOAT_TYPES:
        yield build.soft_max(x, _leaf(mask_type, ROW, 2), SoftMaxParams())
    yield build.rope(_leaf(F32, ROW, 1, 2), ids, None, RopeParams(n_dims=ROW))


def _chain() -> tuple[Tensor, ...]:
    """What devices that chain small operations compute at once."""
    norm = build.rms_norm(_leaf(F32, ROW, 2), 1e-5)
    return norm, build.binary(Op.MUL, norm, _leaf(F32, ROW))


def _products(weight_type: TensorType) -> Iterator[Tensor]:
    """What reads rows of a type: few columns, and enough for a tile."""
    k = max(ROW, weight_type.block_elems)
    yield build.get_rows(_leaf(weight_type, k, 2), _leaf(I32, 2))
    for n_columns in (1, 8):
        weight, x = _leaf(weight_type, k, 4), _leaf(F32, k, n_columns)
        yield build.mul_mat(weight, x)
    for n_tokens in (1, 8):
        experts, ids = _leaf(weight_type, k, 4, 2), _leaf(I32, 2, n_tokens)
        yield build.mul_mat_id(experts, _leaf(F32, k, 1, n_tokens), ids)


def _set_rows(cache_type: TensorType) -> Iterator[Tensor]:
    for id_type in (I32, I64):
        yield build.set_rows(_leaf(cache_type, ROW, 2), _leaf(F32, ROW, 2), _leaf(id_type, 2))


def _leaf(tensor_type: TensorType, *ne: int) -> Tensor:
    return Tensor(tensor_type, shape4(*ne))
