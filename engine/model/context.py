"""A loaded model that computes batches: ubatches, inputs, logits, graph reuse.

Source: SCHED.md 9. One thread uses it: the engine's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backend.release import release_all
from engine.core.plan import Batch, BatchShape, Plan
from engine.core.summary import Progress
from engine.errors import MemoryRefusedError, ModelError, PlacementError, Stopped
from engine.model.batch_inputs import PlacedBatch
from engine.model.cells import CacheCells, Cells
from engine.model.generic import check_has_graph
from engine.model.loader import (
    Resident,
    buffer_type_of,
    check_loadable,
    check_memory,
    check_present,
    load_cache,
    load_weights,
    place_weights,
)
from engine.model.ready_graphs import ReadyGraph, ReadyGraphs, ready_graph
from engine.sched.execute import expect
from engine.sched.scheduler import Scheduler
from engine.trace.records import HOST_LANE, SpanKind, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.backend.interface import Backend, BufferType, Completion, Device, Event, Place
    from engine.core.devices import BackendView
    from engine.core.summary import OnProgress, StopAsked
    from engine.core.tensor import Tensor
    from engine.gguf.reader import GgufFile
    from engine.model.planning import ModelPlanner
    from engine.sched.execute import EvalCallback
    from engine.trace.recorder import Recorder

Logits = npt.NDArray[np.float32]
Embeddings = npt.NDArray[np.float32]


class ModelContext:
    """A model on its devices. `on_plan` is told of each plan that a run meets, once."""

    def __init__(
        self,
        file: GgufFile,
        planner: ModelPlanner,
        devices: Mapping[str, Device],
        recorder: Recorder,
        *,
        on_plan: Callable[[Plan], None],
        stop_address: int,
        stop_asked: StopAsked,
        reads_weights: bool = True,
    ) -> None:
        """Without `reads_weights` they have places only, as devices on paper need no more."""
        check_has_graph(file)
        if reads_weights:
            check_loadable(file)
        check_present(planner.model, devices)
        if reads_weights:
            check_memory(planner.model)
        self.planner = planner
        self.recorder = recorder
        self.n_past = 0
        self._file = file
        self._devices = devices
        self._on_plan = on_plan
        self._stop_asked = stop_asked
        self._reads_weights = reads_weights
        self._resident = Resident()
        self._ready: ReadyGraph | None = None
        self._seen: tuple[int, ...] = ()
        self._kept = ReadyGraphs()
        self._told: set[int] = set()
        self._step = 0
        self._is_under_way = False
        self._cells = tuple(CacheCells(part) for part in planner.cache.parts)
        self._backends: list[Backend] = []
        self._scheduler: Scheduler | None = None
        self._stop_address = stop_address
        self.pipeline_note = ""
        """Why graphs are computed one after the other although they were planned as a pipeline."""

    def load(self, on_progress: OnProgress) -> None:
        """Compile kernels, load weights, reserve the worst case; raises Stopped when asked to."""
        self._open_backends(on_progress)
        if self._reads_weights:
            load_weights(
                self._resident, self._file, self.planner.weights, self._devices,
                on_progress=on_progress, stop_asked=self._stop_asked,
            )  # fmt: skip
        else:
            place_weights(self._resident, self.planner.weights, self._devices)
        for cache in (self.planner.cache, self.planner.model.state):
            load_cache(self._resident, cache, self._devices)
        try:
            self._reserve()
        except MemoryRefusedError as error:
            n_copies = self.planner.model.n_copies
            if n_copies == 1:
                raise
            # As llama.cpp does: without a pipeline it needs less (SCHED.md 9.2).
            self._give_up_scheduler()
            self.planner = self.planner.without_pipeline()
            self._reserve()
            self.pipeline_note = (
                f"Pipeline off: no memory for {n_copies} graphs at once. {error.title}"
            )

    def _reserve(self) -> None:
        """A scheduler with compute buffers for the worst case."""
        bufts = [self._buffer_type(view) for view in self.planner.backends]
        n_copies = self.planner.model.n_copies
        self._scheduler = Scheduler(self._backends, bufts, self.recorder, n_copies=n_copies)
        for batch in (Batch.PROMPT, Batch.TOKEN, Batch.PROMPT):
            self._scheduler.reserve(self.planner.reserved[batch].plan)

    def _open_backends(self, on_progress: OnProgress) -> None:
        plans = [planned.plan for planned in self.planner.reserved.values()]
        nodes = [node for plan in plans for node in plan.graph.nodes]
        for view in self.planner.backends:
            self._check_stop()
            backend = self._devices[view.device.name].init_backend()
            self._backends.append(backend)
            backend.set_stop_word(self._stop_address)
            name = view.device.name

            def tell(done: int, total: int, kernel: str, name: str = name) -> None:
                on_progress(Progress(f"compiling {kernel} for {name}", done, total))
                self._check_stop()

            backend.prepare_for(nodes, tell)

    def _buffer_type(self, view: BackendView) -> BufferType:
        """The live type of a backend's compute buffer; the CPU's may be a GPU's pinned memory."""
        for device in (self._devices[view.device.name], *self._devices.values()):
            facts = device.facts
            if view.buft.name in (facts.buft.name, facts.host_buft and facts.host_buft.name):
                return buffer_type_of(device, view.buft)
        raise PlacementError(f"No device has memory called {view.buft.name}.")

    def set_threads(self, n_threads: int) -> None:
        """CPU threads from the next graph on; every backend that has threads is told."""
        for backend in self._backends:
            set_n = backend.device.reg.get_proc_address("ggml_backend_set_n_threads")
            if set_n is not None:
                set_n(backend, n_threads)

    def clear(self) -> None:
        """Forget every token; steps are counted from 0 again."""
        self.n_past = 0
        self._step = 0
        for cells in self._cells:
            cells.clear()

    def tell_plans_again(self) -> None:
        """Tell of the plan of every batch again, so that a new run knows those that it meets."""
        self._ready = None
        self._told.clear()

    def decode(self, tokens: Sequence[int], kind: StepKind) -> Logits:
        """Logits after the last of `tokens`, which continue what was decoded before; at least one.

        They are the graph's own memory where the host can read that: the next batch overwrites
        them. Splits tokens into ubatches. Raises ModelError when the context is full, Stopped when
        asked to: the tokens of finished ubatches stay in the cache.
        """
        if self.n_past + len(tokens) > self.planner.n_ctx:
            raise ModelError(
                f"The context of {self.planner.n_ctx} tokens is full.",
                f"{self.n_past} tokens are in it and {len(tokens)} more were to follow.",
                "Choose a longer context (-c) or a shorter prompt.",
            )
        n_ubatch = self.planner.n_ubatch
        *leading, last = [tokens[i : i + n_ubatch] for i in range(0, len(tokens), n_ubatch)]
        try:
            for ubatch in leading:
                self._check_stop()
                self._queue_ubatch(ubatch, kind)
            self._check_stop()
            return self._decode_ubatch(last, kind)
        except (Stopped, ModelError):
            # Of any other error a device is lost: nobody waits for what it was given.
            if self._is_under_way:
                self._finish()
            raise

    def _check_stop(self) -> None:
        if self._stop_asked():
            raise Stopped

    def embed(self, tokens: Sequence[int]) -> Embeddings:
        """The embeddings of a text, f32 [1, n_embd], or [n_tokens, n_embd] without pooling.

        The model was planned with a pooling, and the text is no longer than a graph takes.
        """
        self.clear()
        rows = self._decode_ubatch(tokens, StepKind.PROMPT)
        return rows.reshape(-1, self.planner.hparams.n_embd).copy()

    def _decode_ubatch(self, tokens: Sequence[int], kind: StepKind) -> Logits:
        start_ns = self.recorder.now_ns()
        step, self._step = self._step, self._step + 1
        ready, _ = self._start_ubatch(tokens, step)
        logits = self._read_result(ready)
        self._finish()
        self.recorder.span(
            SpanKind.STEP, HOST_LANE, ready.planned.plan.plan_id, step, step, start_ns,
            self.recorder.now_ns(), peer=int(kind), n_bytes=len(tokens),
        )  # fmt: skip
        return logits

    def _queue_ubatch(self, tokens: Sequence[int], kind: StepKind) -> None:
        """Compute a ubatch whose logits nobody reads; with a pipeline, the next one may begin.

        Its step ends when its last split does.
        """
        scheduler = self._live_scheduler()
        if scheduler.pipeline.n_copies == 1:
            self._decode_ubatch(tokens, kind)
            return
        start_ns = self.recorder.now_ns()
        step, self._step = self._step, self._step + 1
        self._is_under_way = True
        ready, last = self._start_ubatch(tokens, step)
        if last is None or not self.recorder.is_on:
            return
        plan_id, expected = ready.planned.plan.plan_id, expect(self.recorder, last)

        def on_complete(done: Completion) -> None:
            self.recorder.span(
                SpanKind.STEP, HOST_LANE, plan_id, step, step, start_ns, done.end_ns,
                peer=int(kind), n_bytes=len(tokens), expected=expected,
            )  # fmt: skip

        last.on_complete(on_complete)

    def _start_ubatch(self, tokens: Sequence[int], step: int) -> tuple[ReadyGraph, Event | None]:
        """Queue a ubatch: its graph, and the event of its last split."""
        scheduler = self._live_scheduler()
        taken = tuple([cells.take(self.n_past, len(tokens)) for cells in self._cells])
        ready = self._graph_for(len(tokens), step)
        if self._is_under_way:
            scheduler.wait_for_slot(ready.allocated, step)
        self._set_inputs(ready, tokens, taken)
        last = scheduler.compute(ready.allocated, step)
        self.n_past += len(tokens)
        return ready, last

    def _finish(self) -> None:
        """Block until everything that was queued is done."""
        self._live_scheduler().synchronize()
        self._is_under_way = False

    def _live_scheduler(self) -> Scheduler:
        assert self._scheduler is not None, "load() comes first"
        return self._scheduler

    def _graph_for(self, n_tokens: int, step: int) -> ReadyGraph:
        """The graph of this batch; one of the last ones where shape and switches are the same.

        While others are under way it is one of the next slot.
        """
        seen = (n_tokens, self.n_past == 0, *[cells.n_kv for cells in self._cells])
        ready = self._ready
        is_same = ready is not None and seen == self._seen and self._has_switches(ready)
        if ready is not None and is_same and not self._is_under_way:
            return ready
        shape = self._shape(n_tokens)
        scheduler = self._live_scheduler()
        scheduler.reset()
        ready = self._kept.get(
            shape, op_offload=self.planner.op_offload, copy_slot=scheduler.pipeline.next_slot
        )
        if ready is None or not scheduler.take_again(ready.allocated):
            ready = self._planned_graph(shape, step)
        self._ready, self._seen = ready, seen
        plan = ready.planned.plan
        self._kept.put(ready)
        if plan.plan_id not in self._told:
            self._told.add(plan.plan_id)
            self._on_plan(plan)
        return ready

    def _planned_graph(self, shape: BatchShape, step: int) -> ReadyGraph:
        start_ns = self.recorder.now_ns()
        batch = Batch.TOKEN if shape.n_tokens == 1 else Batch.PROMPT
        scheduler = self._live_scheduler()
        planned = self.planner.plan(batch, shape, copy_slot=scheduler.pipeline.next_slot)
        allocated = scheduler.alloc_graph(planned.plan, self._resident.places)
        self.recorder.span(
            SpanKind.PLAN, HOST_LANE, planned.plan.plan_id, step, step, start_ns,
            self.recorder.now_ns(),
        )  # fmt: skip
        return ready_graph(planned, allocated, self._cells)

    def _shape(self, n_tokens: int) -> BatchShape:
        if self.planner.hparams.encoder is not None:
            return self.planner.run_shape(n_tokens, 0)
        n_kv = [cells.n_kv for cells in self._cells]
        return self.planner.shape_seeing(n_tokens, n_kv, self.n_past)

    def _has_switches(self, ready: ReadyGraph) -> bool:
        # The plan's own switch: the planner's may have been turned while the plan was made.
        return ready.planned.plan.op_offload == self.planner.op_offload

    def _set_inputs(
        self, ready: ReadyGraph, tokens: Sequence[int], taken: tuple[Cells, ...]
    ) -> None:
        if ready.token_inputs is not None:
            ready.token_inputs.write(tokens[0], self.n_past, taken)
            return
        hparams, pooling = self.planner.hparams, self.planner.model.pooling
        encoder = hparams.encoder
        placed = PlacedBatch(
            tokens, self.n_past, self._cells, taken, hparams.temperature, pooling,
            hides_later=encoder is not None and encoder.hides_later,
        )  # fmt: skip
        for key, value in placed.values(ready.inputs).items():
            place = ready.input_places[key]
            place.buffer.set_tensor(place.offset, value.reshape(-1).view(np.uint8))

    def _read_result(self, ready: ReadyGraph) -> Logits:
        backend = self._backends[ready.logits_backend_id]
        if ready.seen_logits is not None:
            backend.synchronize()
            return ready.seen_logits
        logits = np.empty(ready.planned.built.logits.n_elems, np.float32)
        backend.get_tensor_async(ready.logits_place, logits.view(np.uint8))
        backend.synchronize()
        return logits

    # For checks: nodes one by one.

    def watch(self, callback: EvalCallback | None) -> None:
        """Ask `callback` about every node from the next batch on; None: compute whole splits."""
        self._live_scheduler().eval_callback = callback

    @property
    def last_plan(self) -> Plan:
        """The plan of the batch that is or was computed last."""
        return self._last().planned.plan

    def input_values(self) -> dict[Tensor, npt.NDArray[np.uint8]]:
        """Bytes of the inputs of that batch; a graph may use their memory again."""
        ready = self._last()
        inputs = ready.planned.built.inputs.values()
        return {x: _bytes_at(ready.allocated.place_of(x), x.n_bytes) for x in inputs}

    def node_values(self, node_id: int) -> npt.NDArray[np.uint8]:
        """Bytes of a node of that batch: its own while nothing took its memory."""
        return _bytes_at(*self._node_place(node_id))

    def set_node_values(self, node_id: int, raw: npt.NDArray[np.uint8]) -> None:
        """Replace the bytes of a node, so that later ones are computed from these."""
        place, _ = self._node_place(node_id)
        place.buffer.set_tensor(place.offset, raw).synchronize()

    def _node_place(self, node_id: int) -> tuple[Place, int]:
        tensor = self.last_plan.run.nodes[node_id]
        return self._last().allocated.place_of(tensor), tensor.n_bytes

    def _last(self) -> ReadyGraph:
        assert self._ready is not None, "decode() or embed() comes first"
        return self._ready

    def dispose(self) -> None:
        """End the streams, whose queued work still uses the buffers, then release those.

        Whatever one device says of its own, the others are ended and released.
        """
        self._ready = None
        self._kept.clear()
        backends, self._backends = self._backends, []
        streams = [backend.dispose for backend in backends]
        release_all([*streams, self._give_up_scheduler, self._resident.release])

    def _give_up_scheduler(self) -> None:
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.dispose()


def _bytes_at(place: Place, n_bytes: int) -> npt.NDArray[np.uint8]:
    out = np.empty(n_bytes, np.uint8)
    place.buffer.get_tensor(place.offset, out).synchronize()
    return out
