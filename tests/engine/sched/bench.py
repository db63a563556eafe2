"""A scheduler on null devices that logs every call."""

import dataclasses

from engine.backend.interface import Place
from engine.backends.null.reg import NullReg
from engine.core.behaviour import CURRENT, Behaviour
from engine.core.devices import BackendView, DeviceCaps, DeviceType
from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Tensor
from engine.sched.planner import plan_graph
from engine.sched.scheduler import Scheduler
from engine.trace.recorder import Recorder
from engine.trace.records import SpanKind
from tests.engine.sched.drawn import CPU_BUFT, GPU0_BUFT, N, graph_of, matmul, weight

FULL = 4 * N * N


class Bench:
    """A scheduler on null devices that logs every call; weights and caches get places."""

    def __init__(
        self, *views: BackendView, n_copies: int = 1, behaviour: Behaviour = CURRENT, **caps: bool
    ) -> None:
        self.behaviour = behaviour
        self.calls: list[str] = []
        facts = [self._facts(view, caps) for view in views]
        self.views = tuple(
            BackendView(view.name, device, view.buft)
            for view, device in zip(views, facts, strict=True)
        )
        devices = NullReg(facts, self.calls.append).devices()
        self.bufts = [device.buffer_type() for device in devices]
        self.backends = [device.init_backend() for device in devices]
        self.recorder = Recorder()
        self.scheduler = Scheduler(
            self.backends, self.bufts, self.recorder, n_copies=n_copies, behaviour=behaviour
        )
        self.resident: dict[Tensor, Place] = {}

    def _facts(self, view, caps):
        if view.device.type is DeviceType.CPU:
            return view.device
        cpyasync = caps.get("cpyasync", False)
        return dataclasses.replace(
            view.device,
            caps=DeviceCaps(
                asynchronous=caps.get("asynchronous", False), events=caps.get("events", False)
            ),
            copies_async=cpyasync,
        )

    def plan(self, *outputs: Tensor, **settings):
        graph = graph_of(*outputs)
        for leaf in graph.leafs:
            if leaf.buffer is not None and leaf not in self.resident:
                buft = next(b for b in self.bufts if b.facts == leaf.buffer.buft)
                self.resident[leaf] = Place(buft.alloc_buffer(leaf.n_bytes), 0)
        return plan_graph(
            graph, self.views, plan_id=7, batch=Batch.PROMPT, shape=BatchShape(N, 256, N),
            n_copies=self.scheduler.pipeline.n_copies, behaviour=self.behaviour, **settings,
        )  # fmt: skip

    def alloc(self, *outputs: Tensor, **settings):
        self.scheduler.reset()
        settings["copy_slot"] = self.scheduler.pipeline.next_slot
        return self.scheduler.alloc_graph(self.plan(*outputs, **settings), self.resident)

    def run(self, *outputs: Tensor, **settings) -> list[str]:
        """The calls of one computation."""
        allocated = self.alloc(*outputs, **settings)
        self.calls.clear()
        self.scheduler.compute(allocated, step=0)
        return list(self.calls)

    def spans(self, kind: SpanKind):
        return self.recorder.snapshot().of_kind(kind)


def on_gpu(name, x, buft=GPU0_BUFT):
    return matmul(name, weight(f"w_{name}", buft), x)


def on_cpu(name, x):
    return matmul(name, weight(f"w_{name}", CPU_BUFT), x)
