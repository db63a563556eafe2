"""A run with expert copies on devices that compute nothing and keep a clock of their own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.core import build
from engine.core.table import PlanTable, table_of
from engine.core.types import TensorType
from engine.trace.recorder import Recorder
from engine.trace.records import HOST_LANE, SpanKind, StepKind
from engine.trace.snapshot import TraceSnapshot
from tests.engine.sched.bench import Bench
from tests.engine.sched.drawn import CPU_BUFT, N, cache, cpu, given, gpu, named, weight

N_EXPERTS = 8
EXPERT_BYTES = 4 * N * N
PAD_BYTES = 512


def expert_run(
    *used_by_step: Sequence[int], kind: StepKind = StepKind.TOKEN
) -> tuple[PlanTable, Recorder]:
    """Compute up [GPU0] ──► down [GPU0], both with experts in CPU memory, once for each list.

    The lists are of one length: the numbers of the experts that the router chose.
    """
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)
    n_used = len(used_by_step[0])
    ids = cache("ids", CPU_BUFT, n_used, 1)
    ids.type, ids.nb = TensorType.I32, (4, 4 * n_used, 4 * n_used, 4 * n_used)
    host = HostBufferType(CPU_BUFT).alloc_buffer(ids.n_bytes)
    bench.resident[ids] = Place(host, 0)
    up_exps, down_exps = (weight(name, CPU_BUFT, N, N, N_EXPERTS) for name in ("up", "down"))
    up = named("ffn_up-0", build.mul_mat_id(up_exps, given("x", N, 1), ids))
    down = named("ffn_down-0", build.mul_mat_id(down_exps, up, ids))
    allocated = bench.alloc(down)
    for step, used in enumerate(used_by_step):
        host.set_tensor(0, np.array(used, np.int32).view(np.uint8))
        bench.scheduler.compute(allocated, step=step)
        record_step(bench.recorder, allocated.plan.plan_id, step, kind)
    return table_of(allocated.plan), bench.recorder


def record_step(recorder: Recorder, plan_id: int, step: int, kind: StepKind) -> None:
    """Frame what was recorded of a step."""
    spans = recorder.snapshot().spans()
    mine = spans[(spans["step"] == step) & (spans["kind"] != SpanKind.WAIT)]
    recorder.span(
        SpanKind.STEP, HOST_LANE, plan_id, step, step, int(mine["start_ns"].min()),
        int(mine["end_ns"].max()), peer=kind, n_bytes=1,
    )  # fmt: skip


def without_waits(recorder: Recorder) -> TraceSnapshot:
    """The trace as a view shows it: waits are on the host's clock, all else on the devices'."""
    snapshot = recorder.snapshot()
    spans = snapshot.spans()
    return replace(snapshot, chunks=(spans[spans["kind"] != SpanKind.WAIT],))
