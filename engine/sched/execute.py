"""SplitRunner: for each split wait, copy, compute, record. Source: SCHED.md 15.

The only place where a backend is told to compute, and where time is taken. The time of a split or
a copy arrives through its event, perhaps later and on a driver's thread; the time the host waited
is taken here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Backend, Completion, DoneEvent, Event, Place, SplitGraph
from engine.backend.transfer import copy_bytes
from engine.core.behaviour import CURRENT, Behaviour
from engine.core.devices import BufferUsage
from engine.core.experts import Piece, is_expert_copy, pieces
from engine.core.tensor import Flag, Tensor
from engine.errors import DeviceError, ModelError
from engine.trace.records import (
    NO_EXPERTS,
    NO_LANE,
    NOT_EXPECTED,
    SpanFlag,
    SpanKind,
    placed_lanes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from engine.core.devices import BackendView
    from engine.core.placement import InputCopy, Split
    from engine.sched.pipeline import Pipeline
    from engine.sched.scheduler import AllocatedGraph
    from engine.trace.recorder import Recorder

SHORTEST_WAIT_NS = 1_000
"""Waits below this are calls that found nothing to wait for; they are not recorded."""

EvalCallback = Callable[[int, bool], bool]
"""(node id, ask): with ask, whether the values of this node are wanted; without, they are there,
and the answer says whether to go on with the rest of its split. Views are asked about too."""


@dataclass(slots=True)
class SplitRunner:
    """One run over the splits of an allocated graph.

    With `callback` a split is computed in pieces that end where a node is wanted.
    """

    graph: AllocatedGraph
    backends: tuple[Backend, ...]
    pipeline: Pipeline
    recorder: Recorder
    step: int
    behaviour: Behaviour = CURRENT
    callback: EvalCallback | None = None
    previous_id: int = -1
    last: Event | None = None
    """The event of the last piece of work that was queued."""
    _ids_tensor: Tensor | None = None
    _used_experts: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Compute every split; returns when the last one is queued.

        Raises what backends raise: DeviceError, Stopped. ModelError for an expert that does not
        exist.
        """
        for split in self.graph.plan.trace.cut.splits:
            self._run_split(split)

    def wait_for_slot(self) -> None:
        """Block until no backend uses this graph's slot any more: its inputs may be written."""
        first = self.graph.plan.trace.cut.splits[0]
        for backend_id in range(len(self.backends)):
            if self._event(backend_id) is not None:
                self._wait_for_slot(backend_id, first)

    def _run_split(self, split: Split) -> None:
        if self._must_wait_for_previous(split):
            self._wait_for_slot(self.previous_id, split)
        for copy in split.inputs:
            self._copy_input(split, copy)
        if self.callback is None:
            self._compute(split, self.graph.splits[split.id], split.start)
        else:
            self._compute_in_pieces(split, self.callback)
        event = self._event(split.backend_id)
        if event is not None and (split.inputs or self.behaviour.records_every_split):
            self.backends[split.backend_id].event_record(event)
        self.previous_id = split.backend_id

    def _must_wait_for_previous(self, split: Split) -> bool:
        """Whether no copy waits for the other backend, whose memory this split may use again."""
        changed = self.previous_id not in (-1, split.backend_id)
        return changed and not split.inputs and self.behaviour.waits_without_inputs

    def _compute(self, split: Split, graph: SplitGraph, first_node: int) -> None:
        backend = self.backends[split.backend_id]
        event = backend.graph_compute(graph)
        if not isinstance(event, Event):
            raise DeviceError(
                f"The backend {backend.name} did not compute split {split.id}.",
                f"Its graph_compute gave {event!r}, which is no Event.",
                f"Check it: python -m engine ops --backend {backend.name}",
            )
        self.last = event
        self._record_split(event, split, first_node)

    def _compute_in_pieces(self, split: Split, callback: EvalCallback) -> None:
        """Compute up to each wanted node and show it; a refusal leaves out the rest of the split.

        Source: SCHED.md 15, step 3.
        """
        whole = self.graph.splits[split.id]
        first = split.start
        while first < split.stop:
            last, wanted = first, callback(first, True)
            while not wanted and last + 1 < split.stop:
                last += 1
                wanted = callback(last, True)
            nodes = whole.nodes[first - split.start : last + 1 - split.start]
            self._compute(split, SplitGraph(nodes, whole.places), first)
            self.backends[split.backend_id].synchronize()
            if wanted and not callback(last, False):
                return
            first = last + 1

    def _event(self, backend_id: int) -> Event | None:
        return self.pipeline.event(backend_id, self.graph.plan.copy_slot)

    def _wait_for_slot(self, backend_id: int, split: Split) -> None:
        """Block until the backend no longer uses the slot; without events, until it is done."""
        event = self._event(backend_id)
        backend = self.backends[backend_id]
        self._wait(backend_id, split, backend.synchronize if event is None else event.synchronize)

    def _wait_for_backend(self, backend_id: int, split: Split) -> None:
        self._wait(backend_id, split, self.backends[backend_id].synchronize)

    def _wait(self, backend_id: int, split: Split, wait: Callable[[], None]) -> None:
        now_ns = self.recorder.now_ns
        start_ns = now_ns()
        wait()
        end_ns = now_ns()
        if end_ns - start_ns >= SHORTEST_WAIT_NS:
            self.recorder.span(
                SpanKind.WAIT, backend_id, self.graph.plan.plan_id, split.id, self.step,
                start_ns, end_ns,
            )  # fmt: skip

    def _copy_input(self, split: Split, copy: InputCopy) -> None:
        source = self._source_of(copy)
        if source.flags & Flag.INPUT:
            # At once: the caller may overwrite the input before the copy would be made.
            self._wait_for_slot(split.backend_id, split)
            self._copy_blocking(copy, source)
            return
        self._guard_slot(split)
        if self._is_expert_copy(split, copy):
            self._copy_used_experts(split, copy, source)
            return
        event = self.backends[split.backend_id].cpy_tensor_async(
            self.backends[copy.source_backend_id],
            self.graph.place_of(source),
            self.graph.place_of(self._target_of(copy)),
            copy.n_bytes,
        )
        if event is not None:
            self._record_copy(event, copy, source)
            return
        self._wait_for_backend(copy.source_backend_id, split)
        self._wait_for_slot(split.backend_id, split)
        self._copy_blocking(copy, source)

    def _guard_slot(self, split: Split) -> None:
        """Let no copy of this split be overwritten while the slot's last graph may still use it."""
        event = self._event(split.backend_id)
        if event is None:
            self._wait_for_backend(split.backend_id, split)
        else:
            self.backends[split.backend_id].event_wait(event)

    def _target_of(self, copy: InputCopy) -> Tensor:
        return copy.tensors[self.graph.plan.copy_slot]

    def _source_of(self, copy: InputCopy) -> Tensor:
        plan = self.graph.plan
        node_id = copy.slot - len(plan.graph.leafs)
        if 0 <= node_id < len(plan.run.nodes):
            return plan.run.nodes[node_id]
        if node_id < 0:
            return plan.run.leafs[copy.slot]
        raise AssertionError(f"copy {copy.id} has a source that the graph does not visit")

    def _is_expert_copy(self, split: Split, copy: InputCopy) -> bool:
        """Asked of the planned graph, where the first node still reads the source itself."""
        graph = self.graph.plan.graph
        n_leafs = len(graph.leafs)
        is_leaf = copy.slot < n_leafs
        source = graph.leafs[copy.slot] if is_leaf else graph.nodes[copy.slot - n_leafs]
        return is_expert_copy(source, graph.nodes[split.start])

    def _copy_blocking(self, copy: InputCopy, source: Tensor) -> None:
        target = self.graph.place_of(self._target_of(copy))
        event = copy_bytes(self.graph.place_of(source), target, copy.n_bytes)
        self._record_copy(event, copy, source)

    def _copy_used_experts(self, split: Split, copy: InputCopy, source: Tensor) -> None:
        self._wait_for_backend(copy.source_backend_id, split)
        ids = self.graph.plan.run.nodes[split.start].src[2]
        if ids.n_elems == 0:
            return
        self._learn_experts(split, copy, ids, n_experts=source.ne[2])
        target = self.graph.place_of(self._target_of(copy))
        data = self._host_bytes(source)
        for piece in pieces(source, self._used_experts):
            event = self.backends[split.backend_id].set_tensor_async(
                Place(target.buffer, target.offset + piece.start), data[piece.start : piece.stop]
            )
            self._record_copy(event, copy, source, piece)

    def _learn_experts(self, split: Split, copy: InputCopy, ids: Tensor, n_experts: int) -> None:
        """Read which experts are used, unless the same ids tensor was read just before."""
        ids_tensor, backend_id = ids, split.backend_id
        for later in split.inputs:
            # Its copy is not made yet: the original is read instead.
            if self._target_of(later) is ids and later.id > copy.id:
                ids_tensor, backend_id = self._source_of(later), later.source_backend_id
        if ids_tensor is self._ids_tensor:
            return
        self._ids_tensor = ids_tensor
        used = [int(expert) for expert in np.unique(self._read_ids(ids_tensor, backend_id))]
        for expert in used:
            if not 0 <= expert < n_experts:
                raise _no_such_expert(ids_tensor, expert, n_experts)
        self._used_experts = used

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

    def _record_split(self, event: Event, split: Split, first_node: int) -> None:
        recorder, plan_id, step = self.recorder, self.graph.plan.plan_id, self.step
        if not recorder.is_on:
            return
        expected = expect(recorder, event)
        views = self.graph.plan.backends

        def on_complete(done: Completion) -> None:
            flags = SpanFlag.CLOCK_CONVERTED if done.clock_converted else SpanFlag.NONE
            lane_of = _lanes_by_device(views) if done.shards else {}
            for shard in done.shards:
                kind = SpanKind.EXCHANGE if shard.source else SpanKind.SHARD
                recorder.span(
                    kind, lane_of[shard.device], plan_id, split.id, step,
                    shard.start_ns, shard.end_ns, peer=lane_of.get(shard.source, NO_LANE),
                    flags=flags, n_bytes=shard.n_bytes,
                )  # fmt: skip
            if done.nodes is not None:
                recorder.node_spans(
                    split.backend_id, plan_id, step, first_node, done.nodes.nodes, done.nodes.read
                )
            recorder.span(
                SpanKind.SPLIT, split.backend_id, plan_id, split.id, step,
                done.start_ns, done.end_ns, flags=flags, expected=expected,
            )  # fmt: skip

        event.on_complete(on_complete)

    def _record_copy(
        self, event: Event, copy: InputCopy, source: Tensor, piece: Piece | None = None
    ) -> None:
        """Record a whole copy, or a piece of one: into each of several devices that get it."""
        if not self.recorder.is_on:
            return
        recorder, plan_id, step = self.recorder, self.graph.plan.plan_id, self.step
        flags, moved = _copy_flags(source), piece or Piece(NO_EXPERTS, 0, copy.n_bytes)
        expected, views = expect(recorder, event), self.graph.plan.backends

        def on_complete(done: Completion) -> None:
            converted = SpanFlag.CLOCK_CONVERTED if done.clock_converted else SpanFlag.NONE
            arrivals = _arrivals(done, copy, views)
            for i, (lane, start_ns, end_ns) in enumerate(arrivals, 1):
                recorder.span(
                    SpanKind.COPY, lane, plan_id, copy.id, step,
                    start_ns, end_ns, peer=copy.source_backend_id,
                    flags=flags | converted, n_bytes=moved.stop - moved.start,
                    experts=moved.experts,
                    expected=expected if i == len(arrivals) else NOT_EXPECTED,
                )  # fmt: skip

        event.on_complete(on_complete)


def expect(recorder: Recorder, event: Event) -> int:
    """Announce a span that comes later; one whose work is done comes at once."""
    return NOT_EXPECTED if isinstance(event, DoneEvent) else recorder.expect()


def _arrivals(
    done: Completion, copy: InputCopy, backends: Sequence[BackendView]
) -> list[tuple[int, int, int]]:
    """Lane, start and end of what was copied; each of several devices gets all of it."""
    if not done.shards:
        return [(copy.backend_id, done.start_ns, done.end_ns)]
    lane_of = _lanes_by_device(backends)
    return [(lane_of[shard.device], shard.start_ns, shard.end_ns) for shard in done.shards]


def _lanes_by_device(backends: Sequence[BackendView]) -> dict[str, int]:
    """The lane of each device by its name; one that is joined by several has the first."""
    lanes = [*placed_lanes([view.device for view in backends])]
    return {lane.device.name: lane.lane for lane in reversed(lanes)}


def _copy_flags(source: Tensor) -> SpanFlag:
    if source.flags & Flag.INPUT:
        return SpanFlag.USER_INPUT
    if source.home is not None and source.home.usage is BufferUsage.WEIGHTS:
        return SpanFlag.WEIGHT
    return SpanFlag.NONE


def _no_such_expert(ids: Tensor, expert: int, n_experts: int) -> ModelError:
    return ModelError(
        f"{ids.name} names expert {expert}, and the layer has {n_experts}.",
        "The router's choice cannot be used: its numbers are not those of experts.",
        "The model file may be damaged; download another copy.",
    )
