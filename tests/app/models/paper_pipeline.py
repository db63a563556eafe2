"""A prompt of several graphs on two GPUs, one behind the other, and devices that share splits."""

import functools
from collections import defaultdict
from dataclasses import replace

from engine.backends.null.presets import MIB, cpu, cuda
from engine.core.devices import DeviceType
from engine.core.options import Options
from engine.core.table import PlanSetTable, table_of_set
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from engine.trace.recorder import Recorder
from engine.trace.records import HOST_LANE, MEMBER_LANE, SpanKind, StepKind
from engine.trace.snapshot import TraceSnapshot
from tests.app.models import paper_run
from tests.oracle import golden

ORIGIN_NS = paper_run.ORIGIN_NS
SPLIT_NS = 4_000_000
COPY_NS = 300_000
QUEUE_NS = 50_000
N_TOKENS = 64


@functools.cache
def plans(**options) -> PlanSetTable:
    """The demo on OpenCL0 and OpenCL1, half of the layers on each."""
    gpus = [cuda(f"OpenCL{i}", 8_192 * MIB) for i in range(2)]
    facts = [*gpus, cpu("CPU", 24_105 * MIB)]
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        wanted = Options(n_ctx=512, tensor_split=(1, 1), **options)
        planner = make_planner(file, facts, wanted, plan_ids=paper_run.PLAN_IDS)
        return table_of_set(planner.plan_set())


def run_on_paper(n_graphs: int = 4, *, n_copies: int = 4) -> TraceSnapshot:
    """So many graphs of a prompt; each waits for its slot, and splits for their copies."""
    recorder, table = Recorder(), plans().prompt
    free: dict[int, int] = defaultdict(lambda: ORIGIN_NS)
    ends = [ORIGIN_NS] * n_copies
    for step in range(n_graphs):
        begun = max(ORIGIN_NS + step * QUEUE_NS, ends[step])
        now = begun + QUEUE_NS
        for split_id, split in enumerate(table.splits):
            lane = int(split["backend"])
            now = max(_record_copies(recorder, split_id, step, now), free[lane])
            end = now + SPLIT_NS * (1 if lane < 2 else 0) + COPY_NS
            recorder.span(SpanKind.SPLIT, lane, table.plan_id, split_id, step, now, end)
            now = free[lane] = end
        recorder.span(
            SpanKind.STEP, HOST_LANE, table.plan_id, step, step, begun, now + 1,
            peer=StepKind.PROMPT, n_bytes=N_TOKENS,
        )  # fmt: skip
        ends.append(now + 1)
    return recorder.snapshot()


def _record_copies(recorder: Recorder, split_id: int, step: int, now: int) -> int:
    table = plans().prompt
    first = int(table.splits[split_id]["first_copy"])
    for copy_id in range(first, first + int(table.splits[split_id]["n_copies"])):
        copy = table.copies[copy_id]
        recorder.span(
            SpanKind.COPY, int(copy["target"]), table.plan_id, copy_id, step, now, now + COPY_NS,
            peer=int(copy["source"]), n_bytes=int(copy["bytes"]),
        )  # fmt: skip
        now += COPY_NS
    return now


def joined_plans() -> PlanSetTable:
    """The plans of one GPU, as if that joined two."""
    found = paper_run.small_plans()
    tables = [_joined(table) for table in (found.prompt, found.token)]
    return replace(found, prompt=tables[0], token=tables[1])


def _joined(table):
    gpu, *rest = table.devices
    members = tuple(replace(gpu, name=f"OpenCL{i}") for i in range(2))
    meta = replace(gpu, name="Meta()", type=DeviceType.META, members=members)
    return replace(table, devices=(meta, *rest))


def joined_run() -> TraceSnapshot:
    """One step whose splits on the META device are shared by its members, which then exchange."""
    recorder, table = Recorder(), joined_plans().prompt
    now = ORIGIN_NS
    for split_id, split in enumerate(table.splits):
        lane, end = int(split["backend"]), now + SPLIT_NS
        recorder.span(SpanKind.SPLIT, lane, table.plan_id, split_id, 0, now, end)
        if lane == 0:
            for i in range(2):
                recorder.span(
                    SpanKind.SHARD, MEMBER_LANE + i, table.plan_id, split_id, 0,
                    now, end - COPY_NS * (1 + i),
                )  # fmt: skip
            recorder.span(
                SpanKind.EXCHANGE, MEMBER_LANE, table.plan_id, split_id, 0, end - COPY_NS, end,
                peer=MEMBER_LANE + 1, n_bytes=MIB,
            )  # fmt: skip
        now = end
    recorder.span(
        SpanKind.STEP, HOST_LANE, table.plan_id, 0, 0, ORIGIN_NS, now,
        peer=StepKind.PROMPT, n_bytes=N_TOKENS,
    )  # fmt: skip
    return recorder.snapshot()
