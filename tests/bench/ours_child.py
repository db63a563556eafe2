"""Our engine in a process of its own: `python -m tests.bench.ours_child`, asked in JSON.

Every request begins with no tokens and an empty trace, as a new run does; graphs of shapes that
came before are kept.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.devices import DeviceType
from engine.core.options import Options
from engine.core.plan import MemoryKind
from engine.model.planning import make_planner
from engine.session import Session
from engine.trace.records import SpanKind, StepKind
from tests.bench import process_memory
from tests.bench.wire import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.context import ModelContext
    from tests.bench.op_pairs import OpPairs

CPU_ONLY = ("none",)
GPUS = (DeviceType.GPU, DeviceType.IGPU)


READ_S = 0.1
"""How often a window asks for what was recorded."""


class OurEngine:
    """Answers requests with our engine."""

    def __init__(self) -> None:
        self._session = Session()
        self._context: ModelContext | None = None
        self._op_pairs: OpPairs | None = None

    def devices(self) -> dict[str, Any]:
        """The devices with graphics processors, or what stands for one."""
        found = [d for d in self._session.devices() if d.type in GPUS]
        return {"names": [d.name for d in found], "descriptions": [d.description for d in found]}

    def load(self, path: str, n_threads: int, n_ctx: int, on_gpu: bool) -> dict[str, Any]:
        """Open a model and load it, on the CPU alone or all layers on the first devices."""
        start = time.perf_counter()
        self._session.open(path)
        options = Options(n_threads=n_threads, n_ctx=n_ctx)
        self._session.options = options if on_gpu else replace(options, devices=CPU_ONLY)
        self._context = self._session.prepare()
        return {"seconds": time.perf_counter() - start}

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        """Seconds for all tokens as one prompt."""
        context = self._cleared()
        start = time.perf_counter()
        context.decode(tokens, StepKind.PROMPT)
        return {"seconds": time.perf_counter() - start}

    def decode(self, tokens: list[int]) -> dict[str, Any]:
        """Seconds for each of the tokens, one after the other."""
        context = self._cleared()
        each = [_token_seconds(context, token) for token in tokens]
        return {"each": each, "seconds": sum(each)}

    def host_share(self, tokens: list[int]) -> dict[str, Any]:
        """For each token after the first, the share of its time that no node computed in."""
        context = self._cleared()
        for token in tokens:
            context.decode([token], StepKind.TOKEN)
        spans = self._session.snapshot().spans()
        length = spans["end_ns"] - spans["start_ns"]
        n_steps = len(tokens)
        of_kind = [
            np.bincount(spans["step"][chosen], length[chosen], n_steps)
            for chosen in (spans["kind"] == SpanKind.STEP, spans["kind"] == SpanKind.NODE)
        ]
        steps, nodes = (sums[1:] for sums in of_kind)
        return {"shares": (1 - nodes / steps).tolist()}

    def tracing(self, tokens: list[int]) -> dict[str, Any]:
        """One generation with recording on and off from token to token, on first.

        What was recorded is read every READ_S by the clock, as a window reads it, which is when
        times of nodes are worked out. That is measured apart: a window reads at its own times, and
        what it costs there is its length over READ_S. The first token is not counted.
        """
        context, recorder, since = self._cleared(), self._session.recorder, 0
        read_at = time.perf_counter()
        seconds: dict[bool, list[float]] = {True: [], False: []}
        reads = []
        context.decode(tokens[:1], StepKind.TOKEN)
        try:
            for i, token in enumerate(tokens[1:]):
                recorder.is_on = i % 2 == 0
                start = time.perf_counter()
                context.decode([token], StepKind.TOKEN)
                end = time.perf_counter()
                seconds[recorder.is_on].append(end - start)
                if recorder.is_on and end - read_at >= READ_S:
                    since, read_at = recorder.snapshot(since).seq, end
                    reads.append(time.perf_counter() - end)
        finally:
            recorder.is_on = True
        return {"on": seconds[True], "off": seconds[False], "reads": reads}

    def planning(self, n_runs: int) -> dict[str, Any]:
        """Seconds for both plans of the open model from nothing, the file already read."""
        setup = self._session.setup()
        ids = iter(range(1 << 30))

        def plan() -> None:
            make_planner(
                setup.model.file, setup.model.facts, setup.options, plan_ids=ids
            ).plan_set()

        return {"each": [_seconds(plan) for _ in range(n_runs)]}

    def memory(self, path: str) -> dict[str, Any]:
        """What this process holds, and what the plan says of it; bytes."""
        rows = self._session.plan(self._session.options).memory.rows
        planned = {
            kind.value: sum(row.n_bytes for row in rows if row.kind is kind) for kind in MemoryKind
        }
        return {
            "planned": planned,
            "process": process_memory.status_bytes(),
            "file_pages": process_memory.mapped_bytes(path),
            "copied": sum(
                row.n_bytes for row in rows if row.kind is MemoryKind.MODEL and not row.is_mapped
            ),
        }

    def op_pairs(self, **wish: Any) -> dict[str, Any]:
        """Single operations on our CPU and on ggml's, in turns; see `OpPairs.answer`."""
        # Only a child that is asked for it pays for the import.
        from tests.bench.op_pairs import OpPairs

        self._op_pairs = self._op_pairs or OpPairs()
        return self._op_pairs.answer(**wish)

    def _cleared(self) -> ModelContext:
        if self._context is None:
            raise RuntimeError("no model is loaded")
        self._context.clear()
        self._context.tell_plans_again()
        self._session.recorder.clear()
        return self._context


def _token_seconds(context: ModelContext, token: int) -> float:
    return _seconds(partial(context.decode, [token], StepKind.TOKEN))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Answer until nobody asks any more."""
    engine = OurEngine()
    names = (
        "devices", "load", "prefill", "decode", "host_share", "tracing", "planning", "memory",
        "op_pairs",
    )  # fmt: skip
    serve({name: getattr(engine, name) for name in names})


if __name__ == "__main__":
    main()
