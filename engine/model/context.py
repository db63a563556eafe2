"""A loaded model that computes batches: ubatches, inputs, logits, graph reuse.

Source: SCHED.md 9. One thread uses it: the engine's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.core.plan import Batch, BatchShape, Plan
from engine.core.summary import Progress
from engine.errors import ModelError, PlacementError, Stopped
from engine.model.loader import (
    Resident,
    buffer_type_of,
    check_loadable,
    load_cache,
    load_weights,
)
from engine.sched.scheduler import AllocatedGraph, Scheduler
from engine.trace.records import HOST_LANE, SpanKind, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.backend.interface import Backend, BufferType, Device, Place
    from engine.core.devices import BackendView
    from engine.core.summary import OnProgress, StopAsked
    from engine.gguf.reader import GgufFile
    from engine.model.planning import ModelPlanner, PlannedGraph
    from engine.trace.recorder import Recorder

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ReadyGraph:
    """A planned and allocated graph, kept while the same shape comes again."""

    planned: PlannedGraph
    allocated: AllocatedGraph
    logits_backend_id: int
    logits_place: Place


class ModelContext:
    """A model on its devices. `on_plan` is told of each batch shape once, when it is planned."""

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
    ) -> None:
        check_loadable(file)
        self.planner = planner
        self.recorder = recorder
        self.n_past = 0
        self._file = file
        self._devices = devices
        self._on_plan = on_plan
        self._stop_asked = stop_asked
        self._resident = Resident()
        self._ready: ReadyGraph | None = None
        self._step = 0
        self._backends: list[Backend] = []
        self._scheduler: Scheduler | None = None
        self._stop_address = stop_address

    def load(self, on_progress: OnProgress) -> None:
        """Compile kernels, load weights, reserve the worst case; raises Stopped when asked to."""
        self._open_backends(on_progress)
        load_weights(
            self._resident, self._file, self.planner.weights, self._devices,
            on_progress=on_progress, stop_asked=self._stop_asked,
        )  # fmt: skip
        load_cache(self._resident, self.planner.cache, self._devices)
        bufts = [self._buffer_type(view) for view in self.planner.backends]
        self._scheduler = Scheduler(self._backends, bufts, self.recorder)
        for batch in (Batch.PROMPT, Batch.TOKEN, Batch.PROMPT):
            self._scheduler.reserve(self.planner.reserved[batch].plan)

    def _open_backends(self, on_progress: OnProgress) -> None:
        for view in self.planner.backends:
            if self._stop_asked():
                raise Stopped
            backend = self._devices[view.device.name].init_backend()
            self._backends.append(backend)
            backend.set_stop_word(self._stop_address)
            name = view.device.name

            def tell(done: int, total: int, kernel: str, name: str = name) -> None:
                on_progress(Progress(f"compiling {kernel} for {name}", done, total))
                if self._stop_asked():
                    raise Stopped

            backend.prepare(tell)

    def _buffer_type(self, view: BackendView) -> BufferType:
        """The live type of a backend's compute buffer; the CPU's may be a GPU's pinned memory."""
        for device in (self._devices[view.device.name], *self._devices.values()):
            facts = device.facts
            if view.buft.name in (facts.buft.name, facts.host_buft and facts.host_buft.name):
                return buffer_type_of(device, view.buft.name)
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

    def forget_graph(self) -> None:
        """Plan the next batch anew, so that a new run is told of every plan it meets."""
        self._ready = None

    def decode(self, tokens: Sequence[int], kind: StepKind) -> Logits:
        """Logits after the last of `tokens`, which continue what was decoded before.

        Splits them into ubatches. Raises ModelError when the context is full, Stopped when asked
        to: the tokens of finished ubatches stay in the cache.
        """
        if self.n_past + len(tokens) > self.planner.n_ctx:
            raise ModelError(
                f"The context of {self.planner.n_ctx} tokens is full.",
                f"{self.n_past} tokens are in it and {len(tokens)} more were to follow.",
                "Choose a longer context (-c) or a shorter prompt.",
            )
        logits = np.empty(0, np.float32)
        for first in range(0, len(tokens), self.planner.n_ubatch):
            if self._stop_asked():
                raise Stopped
            logits = self._decode_ubatch(tokens[first : first + self.planner.n_ubatch], kind)
        return logits

    def _decode_ubatch(self, tokens: Sequence[int], kind: StepKind) -> Logits:
        start_ns = time.monotonic_ns()
        step, self._step = self._step, self._step + 1
        scheduler = self._live_scheduler()
        ready = self._graph_for(len(tokens), step)
        self._set_inputs(ready, tokens)
        scheduler.compute(ready.allocated, step)
        logits = self._read_logits(ready)
        scheduler.synchronize()
        self.n_past += len(tokens)
        self.recorder.span(
            SpanKind.STEP, HOST_LANE, ready.planned.plan.plan_id, step, step, start_ns,
            time.monotonic_ns(), peer=int(kind), n_bytes=len(tokens),
        )  # fmt: skip
        return logits

    def _live_scheduler(self) -> Scheduler:
        assert self._scheduler is not None, "load() comes first"
        return self._scheduler

    def _graph_for(self, n_tokens: int, step: int) -> ReadyGraph:
        """The graph of this batch; the last one again when its shape and switches are the same."""
        n_kv = self.planner.cache.n_kv(self.n_past + n_tokens)
        shape = BatchShape(n_tokens, n_kv, 1)
        ready = self._ready
        if ready is not None and self._fits(ready.planned.plan, shape):
            return ready
        start_ns = time.monotonic_ns()
        batch = Batch.TOKEN if n_tokens == 1 else Batch.PROMPT
        planned = self.planner.plan(batch, shape)
        scheduler = self._live_scheduler()
        scheduler.reset()
        allocated = scheduler.alloc_graph(planned.plan, self._resident.places)
        self._ready = _ready_graph(planned, allocated)
        self._on_plan(planned.plan)
        self.recorder.span(
            SpanKind.PLAN, HOST_LANE, planned.plan.plan_id, step, step, start_ns,
            time.monotonic_ns(),
        )  # fmt: skip
        return self._ready

    def _fits(self, plan: Plan, shape: BatchShape) -> bool:
        # The plan's own switch: the planner's may have been turned while the plan was made.
        return plan.shape == shape and plan.op_offload == self.planner.op_offload

    def _set_inputs(self, ready: ReadyGraph, tokens: Sequence[int]) -> None:
        inputs = ready.planned.built.inputs
        values = self._input_values(np.asarray(tokens, np.int32), ready)
        for name, value in values.items():
            tensor = inputs.get(name)
            if tensor is not None:
                place = ready.allocated.place_of(tensor)
                place.buffer.set_tensor(place.offset, value.reshape(-1).view(np.uint8))

    def _input_values(
        self, tokens: npt.NDArray[np.int32], ready: ReadyGraph
    ) -> dict[str, npt.NDArray[np.generic]]:
        """What the host writes before a batch (ARCH.md 1.4)."""
        cells = np.arange(self.n_past, self.n_past + tokens.size, dtype=np.int64)
        mask_type = np.float16 if self.planner.flash_attn else np.float32
        n_kv = ready.planned.plan.shape.n_kv
        hidden = np.arange(n_kv) > cells[:, None]
        v_ids = cells
        if not self.planner.flash_attn:
            columns = np.arange(self.planner.hparams.n_embd_kv, dtype=np.int64)
            v_ids = (columns[None, :] * self.planner.cache.n_cells + cells[:, None]).reshape(-1)
        return {
            "inp_tokens": tokens,
            "inp_pos": cells.astype(np.int32),
            "attn_inp_k_idxs": cells,
            "attn_inp_v_idxs": v_ids,
            "attn_inp_kq_mask": np.where(hidden, -np.inf, 0.0).astype(mask_type),
            "out_ids": np.array([tokens.size - 1], np.int32),
        }

    def _read_logits(self, ready: ReadyGraph) -> Logits:
        logits = np.empty(self.planner.hparams.n_vocab, np.float32)
        backend = self._backends[ready.logits_backend_id]
        backend.get_tensor_async(ready.logits_place, logits.view(np.uint8))
        backend.synchronize()
        return logits

    def node_values(self, node_id: int) -> npt.NDArray[np.uint8]:
        """Bytes of a node of the last graph, as the last step left them; for checks only.

        They are what the node computed only if nothing took its memory since.
        """
        assert self._ready is not None
        tensor = self._ready.planned.plan.run.nodes[node_id]
        place = self._ready.allocated.place_of(tensor)
        out = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, out).synchronize()
        return out

    def dispose(self) -> None:
        """End the streams, whose queued work still uses the buffers, then release those."""
        for backend in self._backends:
            backend.dispose()
        self._backends.clear()
        self._ready = None
        if self._scheduler is not None:
            self._scheduler.dispose()
            self._scheduler = None
        self._resident.release()


def _ready_graph(planned: PlannedGraph, allocated: AllocatedGraph) -> ReadyGraph:
    """The graph with the place of its logits, looked up once and not for every token."""
    plan = planned.plan
    node_id = plan.graph.nodes.index(planned.built.logits)
    return ReadyGraph(
        planned,
        allocated,
        logits_backend_id=plan.trace.final.backend_ids[len(plan.graph.leafs) + node_id],
        logits_place=allocated.place_of(plan.run.nodes[node_id]),
    )
