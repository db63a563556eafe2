"""A case laid out on a device: its bytes, what has to come out, and the split that computes it.

Everything lies in one buffer of the device's default memory. Every byte that nobody has to write
is known before, and looked at afterwards.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Place, SplitGraph
from engine.core.op_matrix import OpSpeed
from engine.core.tensor import Tensor, span_bytes
from engine.opcheck.expect import Expected, expected_of, values_of
from engine.opcheck.inputs import source_bytes, window
from engine.opcheck.judge import bar_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.backend.interface import Backend, BufferType, Bytes, Device
    from engine.core.devices import BufferTypeFacts
    from engine.opcheck.cases import Case

GUARD_BYTES = 128
"""Bytes behind each tensor that nobody may write."""

UNWRITTEN = 0xFF
"""What they are, and what a result is before: NaN as a float of any type."""

LONG_ENOUGH_NS = 200_000_000
MOST_RUNS, FEWEST_RUNS = 50, 3
"""Runs are timed until there are `MOST_RUNS`, or `FEWEST_RUNS` that took long enough together."""

TOO_LONG_NS = 2_000_000_000
"""After so much time one run is enough."""

RUN_NS = 2_000_000
MOST_NODES = 512
MOST_RESULT_BYTES = 1 << 26
"""A timed run computes the same node over and over, for about `RUN_NS`, so that it does not measure
how long it takes to begin and to see the end."""

MOST_GROWTH = 8


class Exercise:
    """A case with its bytes and what has to come out of them, each worked out when it is needed."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @property
    def bar(self) -> float:
        """The largest error that is allowed."""
        return bar_of(self.case)

    @functools.cached_property
    def memory(self) -> tuple[Bytes, ...]:
        """The bytes of each source's memory."""
        return source_bytes(self.case)

    @functools.cached_property
    def expected(self) -> Expected:
        """What has to come out."""
        # Numbers that are too large for a type become infinite, as they do in kernels.
        with np.errstate(over="ignore", invalid="ignore"):
            return expected_of(self.case, self.memory)

    def work_out(self) -> None:
        """Do both now."""
        assert self.memory is not None
        assert self.expected is not None


class Layout:
    """Where a case's tensors lie in one buffer. With `n_nodes` its node is there so often.

    Each copy of the node has a result of its own, unless that lies in a source.
    """

    def __init__(self, buft: BufferTypeFacts, case: Case, n_nodes: int = 1) -> None:
        self.case = case
        self.tensors = tensors = case.tensors(buft)
        self.nodes = (tensors.node, *(_again(tensors.node) for _ in range(n_nodes - 1)))
        self.offsets: dict[Tensor, int] = {}
        self._ends: dict[Tensor, tuple[int, int]] = {}
        results = () if case.target is not None else self.nodes
        at = 0
        for tensor in (*tensors.memory, *results):
            allotted = max(buft.alloc_bytes(tensor), tensor.n_bytes)
            self.offsets[tensor] = at
            self._ends[tensor] = (at + tensor.n_bytes, at + allotted)
            at += -(-(allotted + GUARD_BYTES) // buft.alignment) * buft.alignment
        self.size = at

    @property
    def result_offset(self) -> int:
        """Where the memory of the first node's result begins."""
        return self.offsets[self.tensors.result_memory]

    def image(self, memory: tuple[Bytes, ...]) -> Bytes:
        """The buffer's bytes before anything is computed."""
        image = np.full(self.size, UNWRITTEN, np.uint8)
        for leaf, raw in zip(self.tensors.memory, memory, strict=True):
            image[self.offsets[leaf] : self.offsets[leaf] + raw.size] = raw
        return image

    def result(self, found: Bytes) -> npt.NDArray[np.generic]:
        """The first node's result, numpy's order, in the bytes of a buffer."""
        return values_of(self.case.result, found[self.result_offset :])

    def touched(self, found: Bytes, memory: tuple[Bytes, ...]) -> str:
        """What was written that nobody asked for, in words."""
        changed = np.flatnonzero((found != self.image(memory)) & self._watched())
        if not changed.size:
            return ""
        at, start, result = int(changed[0]), self.result_offset, self.case.result
        end = start + result.offset + span_bytes(result.type, result.ne, result.nb)
        for i, leaf in enumerate(self.tensors.memory):
            offset = self.offsets[leaf]
            if offset <= at < offset + leaf.n_bytes and leaf is not self.tensors.result_memory:
                return f"it changed its source {i} (byte {at - offset})"
        if start <= at < end:
            return f"it wrote into a gap of the result (byte {at - start})"
        return f"it wrote outside of the result ({at - end:+d} bytes from its end)"

    def _watched(self) -> npt.NDArray[np.bool_]:
        """Which bytes have to stay: all but the result's, and those that a device pads with."""
        watched = np.ones(self.size, np.uint8)
        for end, allotted_end in self._ends.values():
            watched[end:allotted_end] = 0
        window(self.case.result, watched[self.result_offset :])[...] = 0
        return watched.view(np.bool_)


def _again(node: Tensor) -> Tensor:
    """The same node once more."""
    other = Tensor(
        node.type, node.ne, nb=node.nb, op=node.op, params=node.params, src=node.src,
        view_src=node.view_src, view_offs=node.view_offs, name=node.name,
    )  # fmt: skip
    other.src = tuple(other if source is node else source for source in node.src)
    return other


class Prepared:
    """A case in a buffer of a device. `release` gives the buffer back."""

    def __init__(
        self, memory: BufferType, backend: Backend, exercise: Exercise, n_nodes: int = 1
    ) -> None:
        self._backend = backend
        self._memory = exercise.memory
        self.layout = layout = Layout(memory.facts, exercise.case, n_nodes)
        self._buffer = buffer = memory.alloc_buffer(layout.size)
        buffer.clear(UNWRITTEN)
        for leaf, raw in zip(layout.tensors.memory, exercise.memory, strict=True):
            buffer.init_tensor(layout.offsets[leaf], leaf)
            buffer.set_tensor(layout.offsets[leaf], raw)
        places = {tensor: Place(buffer, at) for tensor, at in layout.offsets.items()}
        self._graph = SplitGraph(layout.nodes, places)
        self._one_block = np.empty(layout.tensors.node.type.block_bytes, np.uint8)

    def run(self) -> int:
        """Compute and wait until the result can be read; ns of the host's clock.

        Some devices are seen to be done only when something is read: RPC's synchronize waits for
        nothing.
        """
        start_ns = time.monotonic_ns()
        event = self._backend.graph_compute(self._graph)
        self._backend.synchronize()
        event.synchronize()
        if self.layout.tensors.node.n_bytes:
            self._buffer.get_tensor(self.layout.result_offset, self._one_block)
        return time.monotonic_ns() - start_ns

    def found(self) -> tuple[npt.NDArray[np.generic], str]:
        """The result, numpy's order, and what was written that nobody asked for, in words."""
        found = np.empty(self.layout.size, np.uint8)
        self._buffer.get_tensor(0, found)
        return self.layout.result(found), self.layout.touched(found, self._memory)

    def release(self) -> None:
        """Give the buffer back."""
        self._buffer.release()


def started(device: Device, n_threads: int) -> Backend:
    """A new stream of a device, on so many threads where it has threads."""
    backend = device.init_backend()
    set_n_threads = device.reg.get_proc_address("ggml_backend_set_n_threads")
    if set_n_threads is not None:
        set_n_threads(backend, n_threads)
    return backend


def nodes_in_a_run(memory: BufferType, backend: Backend, exercise: Exercise) -> int:
    """How often a timed run computes the node, so that it takes about `RUN_NS`."""
    most, n_nodes = _most_nodes(exercise.case), 1
    while n_nodes < most:
        prepared = Prepared(memory, backend, exercise, n_nodes)
        try:
            prepared.run()
            took_ns = max(1, prepared.run())
        finally:
            prepared.release()
        if took_ns > RUN_NS / 2:
            break
        n_nodes = min(most, n_nodes * min(MOST_GROWTH, RUN_NS // took_ns))
    return n_nodes


def _most_nodes(case: Case) -> int:
    """As many as have results of a size together that is no burden."""
    result_bytes = span_bytes(case.result.type, case.result.ne, case.result.nb)
    if case.target is not None or not result_bytes:
        return MOST_NODES
    return max(1, min(MOST_NODES, MOST_RESULT_BYTES // result_bytes))


def speed_of(prepared: Prepared) -> OpSpeed:
    """How long one node takes, again and again. The first run is not counted."""
    n_nodes, case = len(prepared.layout.nodes), prepared.layout.case
    prepared.run()
    times: list[int] = []
    while len(times) < MOST_RUNS and sum(times) < _limit_ns(len(times)):
        times.append(max(1, prepared.run()))
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (median,) * 3
    return OpSpeed(median / n_nodes, (high - low) / median, len(times), case.n_bytes, case.n_flops)


def _limit_ns(n_runs: int) -> int:
    return TOO_LONG_NS if n_runs < FEWEST_RUNS else LONG_ENOUGH_NS
