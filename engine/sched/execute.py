"""compute_splits: for each split wait, copy, compute, record. Source: SCHED.md 15.

The only place where a backend is told to compute, and where time is taken. The time of a split or
a copy arrives through its event, perhaps later and on a driver's thread; the time the host waited
is taken here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Backend, Completion, Event, Place
from engine.backend.transfer import copy_bytes
from engine.core.devices import BufferUsage
from engine.core.ops import Op
from engine.core.tensor import Flag, Tensor
from engine.trace.records import SpanFlag, SpanKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from engine.core.placement import InputCopy, Split
    from engine.sched.scheduler import AllocatedGraph
    from engine.trace.recorder import Recorder

SHORTEST_WAIT_NS = 1_000
"""Waits below this are calls that found nothing to wait for; they are not recorded."""

EXPERT_PAD_BYTES = 512
"""Bytes past a run of experts that kernels may read (SCHED.md 15)."""


def compute_splits(
    graph: AllocatedGraph, backends: Sequence[Backend], recorder: Recorder, step: int
) -> None:
    """Compute every split of an allocated graph; returns when the last one is queued.

    Raises what backends raise: DeviceError, Stopped.
    """
    SplitRunner(graph, tuple(backends), recorder, step).run()


@dataclass(slots=True)
class SplitRunner:
    """The state of one run over the splits."""

    graph: AllocatedGraph
    backends: tuple[Backend, ...]
    recorder: Recorder
    step: int
    previous_id: int = -1
    _ids_tensor: Tensor | None = None
    _used_experts: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Run the splits in order."""
        for split in self.graph.plan.trace.cut.splits:
            self._run_split(split)

    def _run_split(self, split: Split) -> None:
        backend = self.backends[split.backend_id]
        if not split.inputs and self.previous_id not in (-1, split.backend_id):
            # Memory of the previous backend's split may be used again by this one.
            self._wait(self.previous_id, split)
        for copy in split.inputs:
            self._copy_input(split, copy)
        event = backend.graph_compute(self.graph.splits[split.id])
        self._record_split(event, split)
        self.previous_id = split.backend_id

    def _wait(self, backend_id: int, split: Split) -> None:
        start_ns = time.monotonic_ns()
        self.backends[backend_id].synchronize()
        end_ns = time.monotonic_ns()
        if end_ns - start_ns >= SHORTEST_WAIT_NS:
            self.recorder.span(
                SpanKind.WAIT, backend_id, self.graph.plan.plan_id, split.id, self.step,
                start_ns, end_ns,
            )  # fmt: skip

    def _copy_input(self, split: Split, copy: InputCopy) -> None:
        source = self._source_of(copy)
        self._wait(split.backend_id, split)
        if source.flags & Flag.INPUT:
            self._copy_blocking(copy, source)
            return
        if self._is_expert_copy(split, copy, source):
            self._copy_used_experts(split, copy, source)
            return
        event = self.backends[split.backend_id].cpy_tensor_async(
            self.backends[copy.source_backend_id],
            self.graph.place_of(source),
            self.graph.place_of(copy.tensors[0]),
            copy.n_bytes,
        )
        if event is not None:
            self._record_copy(event, copy, source, copy.n_bytes)
            return
        self._wait(copy.source_backend_id, split)
        self._wait(split.backend_id, split)
        self._copy_blocking(copy, source)

    def _source_of(self, copy: InputCopy) -> Tensor:
        plan = self.graph.plan
        node_id = copy.slot - len(plan.graph.leafs)
        if 0 <= node_id < len(plan.run.nodes):
            return plan.run.nodes[node_id]
        if node_id < 0:
            return plan.graph.leafs[copy.slot]
        raise AssertionError(f"copy {copy.id} has a source that the graph does not visit")

    def _copy_blocking(self, copy: InputCopy, source: Tensor) -> None:
        target = self.graph.place_of(copy.tensors[0])
        event = copy_bytes(self.graph.place_of(source), target, copy.n_bytes)
        self._record_copy(event, copy, source, copy.n_bytes)

    def _is_expert_copy(self, split: Split, copy: InputCopy, source: Tensor) -> bool:
        """Whether this is a host weight of which the split's first node uses some experts."""
        buffer = source.home
        if buffer is None or buffer.usage is not BufferUsage.WEIGHTS or not buffer.buft.is_host:
            return False
        first = self.graph.plan.run.nodes[split.start]
        return first.op is Op.MUL_MAT_ID and first.src[0] is copy.tensors[0]

    def _copy_used_experts(self, split: Split, copy: InputCopy, source: Tensor) -> None:
        self._wait(copy.source_backend_id, split)
        ids = self.graph.plan.run.nodes[split.start].src[2]
        if ids.n_elems == 0:
            return
        self._learn_experts(split, copy, ids, n_experts=source.ne[2])
        target = self.graph.place_of(copy.tensors[0])
        data = self._host_bytes(source)
        expert_bytes = source.nb[2]
        pad = min(expert_bytes, EXPERT_PAD_BYTES)
        for first, last in runs(self._used_experts):
            start = first * expert_bytes
            stop = (last + 1) * expert_bytes + (0 if last == source.ne[2] - 1 else pad)
            event = self.backends[split.backend_id].set_tensor_async(
                Place(target.buffer, target.offset + start), data[start:stop]
            )
            self._record_copy(event, copy, source, stop - start)

    def _learn_experts(self, split: Split, copy: InputCopy, ids: Tensor, n_experts: int) -> None:
        """Read which experts are used, unless the same ids tensor was read just before."""
        ids_tensor, backend_id = ids, split.backend_id
        for later in split.inputs:
            # Its copy is not made yet: the original is read instead.
            if later.tensors[0] is ids and later.id > copy.id:
                ids_tensor, backend_id = self._source_of(later), later.source_backend_id
        if ids_tensor is self._ids_tensor:
            return
        self._ids_tensor = ids_tensor
        used = np.unique(self._read_ids(ids_tensor, backend_id))
        assert used.size == 0 or (used[0] >= 0 and used[-1] < n_experts), (ids, used)
        self._used_experts = [int(expert) for expert in used]

    def _read_ids(self, ids: Tensor, backend_id: int) -> npt.NDArray[np.int32]:
        raw = np.empty(ids.n_bytes, dtype=np.uint8)
        backend = self.backends[backend_id]
        backend.get_tensor_async(self.graph.place_of(ids), raw)
        backend.synchronize()
        return np.ndarray(
            (ids.ne[1], ids.ne[0]), np.int32, raw.data, strides=(ids.nb[1], ids.nb[0])
        )

    def _host_bytes(self, tensor: Tensor) -> npt.NDArray[np.uint8]:
        spot = self.graph.place_of(tensor)
        host = spot.buffer.host
        assert host is not None, tensor
        return host[spot.offset : spot.offset + tensor.n_bytes]

    def _record_split(self, event: Event, split: Split) -> None:
        recorder, plan_id, step = self.recorder, self.graph.plan.plan_id, self.step

        def on_complete(done: Completion) -> None:
            flags = SpanFlag.CLOCK_CONVERTED if done.clock_converted else SpanFlag.NONE
            recorder.span(
                SpanKind.SPLIT, split.backend_id, plan_id, split.id, step,
                done.start_ns, done.end_ns, flags=flags,
            )  # fmt: skip
            if done.nodes is not None:
                node_ids = np.arange(split.start, split.stop, dtype=np.int32)
                recorder.node_spans(
                    split.backend_id, plan_id, step, node_ids,
                    done.nodes.start_ns, done.nodes.end_ns,
                )  # fmt: skip

        event.on_complete(on_complete)

    def _record_copy(self, event: Event, copy: InputCopy, source: Tensor, n_bytes: int) -> None:
        recorder, plan_id, step = self.recorder, self.graph.plan.plan_id, self.step
        flags = _copy_flags(source)

        def on_complete(done: Completion) -> None:
            converted = SpanFlag.CLOCK_CONVERTED if done.clock_converted else SpanFlag.NONE
            recorder.span(
                SpanKind.COPY, copy.backend_id, plan_id, copy.id, step,
                done.start_ns, done.end_ns, peer=copy.source_backend_id,
                flags=flags | converted, n_bytes=n_bytes,
            )  # fmt: skip

        event.on_complete(on_complete)


def _copy_flags(source: Tensor) -> SpanFlag:
    if source.flags & Flag.INPUT:
        return SpanFlag.USER_INPUT
    if source.home is not None and source.home.usage is BufferUsage.WEIGHTS:
        return SpanFlag.WEIGHT
    return SpanFlag.NONE


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """(first, last) of every maximal run of consecutive numbers in a sorted list."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
