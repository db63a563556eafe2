"""A real plan of a real header, and a run of it on paper: what views and models are tested with."""

import functools
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.backends.null.presets import MIB, cpu, cuda
from engine.core.devices import DeviceFacts
from engine.core.options import Options
from engine.core.table import PlanSetTable, PlanTable, table_of_set
from engine.gguf.reader import open_gguf
from engine.machine import with_paper_gpu
from engine.model.planning import make_planner
from engine.trace.recorder import Recorder
from engine.trace.records import HOST_LANE, SpanFlag, SpanKind, StepKind
from engine.trace.snapshot import TraceSnapshot
from tests.engine.nano import nano_with
from tests.oracle import golden

ORIGIN_NS = 5_000_000_000
GPU_BYTES_PER_NS = 0.4
LINK_BYTES_PER_NS = 5.4
LATENCY_NS = 12_000
PLAN_IDS = itertools.count(1)


def devices(gpu_mib: int = 13_824) -> list[DeviceFacts]:
    gpu = cuda("OpenCL0", gpu_mib * MIB)
    buft = replace(gpu.buft, alignment=32, pad_row_elems=0)
    caps = replace(gpu.caps, host_buffer=False)
    return [replace(gpu, buft=buft, host_buft=None, caps=caps), cpu("CPU", 24_105 * MIB)]


def words(text: str) -> str:
    """The text with ordinary spaces for those that do not break."""
    return text.replace("\u202f", " ").replace("\u00a0", " ")


@functools.cache
def plans(n_gpu_layers: int = 2, *, op_offload: bool = True, gpu_mib: int = 13_824) -> PlanSetTable:
    """321 splits and 383 copies with the defaults, as real llama.cpp cuts it."""
    options = Options(n_gpu_layers=n_gpu_layers, n_ctx=512, op_offload=op_offload)
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        return table_of_set(
            make_planner(file, devices(gpu_mib), options, plan_ids=PLAN_IDS).plan_set()
        )


@functools.cache
def plans_without_gpu() -> PlanSetTable:
    """What the demo is planned with on a computer that has a CPU only: a GPU on paper."""
    options = Options(n_gpu_layers=15, n_ctx=512)
    facts = with_paper_gpu((cpu("CPU", 24_105 * MIB),))
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        planner = make_planner(file, facts, options, plan_ids=PLAN_IDS)
        return table_of_set(planner.plan_set())


def plans_without_graph(folder: Path) -> PlanSetTable:
    """What a model of an architecture that nobody has heard of is planned with: no operation."""
    with open_gguf(nano_with(folder, general__architecture="storm", whole=False)) as file:
        planner = make_planner(file, devices(), Options(), plan_ids=PLAN_IDS)
        return table_of_set(planner.plan_set())


@functools.cache
def plans_with_another_gpu() -> PlanSetTable:
    """The same model on a computer with one more GPU, which stands first."""
    facts = [cuda("CUDA0", 8_192 * MIB), *devices()]
    options = Options(n_gpu_layers=20, n_ctx=512)
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        planner = make_planner(file, facts, options, plan_ids=PLAN_IDS)
        return table_of_set(planner.plan_set())


def small_plans() -> PlanSetTable:
    """Everything on the GPU but the embedding: few splits."""
    return plans(-1)


def record_step(
    recorder: Recorder, table: PlanTable, step: int, start_ns: int, n_tokens: int
) -> int:
    """Record one step; give back when it ended."""
    now = start_ns + 40_000
    for split_id, split in enumerate(table.splits):
        first = int(split["first_copy"])
        for copy_id in range(first, first + int(split["n_copies"])):
            now = _record_copy(recorder, table, copy_id, step, now)
        now = _record_split(recorder, table, split_id, step, now)
    end_ns = now + 30_000
    kind = StepKind.PROMPT if n_tokens > 1 else StepKind.TOKEN
    recorder.span(
        SpanKind.STEP, HOST_LANE, table.plan_id, step, step, start_ns, end_ns,
        peer=kind, n_bytes=n_tokens,
    )  # fmt: skip
    return end_ns


def _record_copy(recorder: Recorder, table: PlanTable, copy_id: int, step: int, now: int) -> int:
    copy = table.copies[copy_id]
    end = now + 3_000 + int(copy["bytes"] / LINK_BYTES_PER_NS)
    flags = SpanFlag.WEIGHT if copy["is_weight"] else SpanFlag.NONE
    recorder.span(
        SpanKind.COPY, int(copy["target"]), table.plan_id, copy_id, step, now, end,
        peer=int(copy["source"]), flags=flags, n_bytes=int(copy["bytes"]),
    )  # fmt: skip
    return end


def _record_split(recorder: Recorder, table: PlanTable, split_id: int, step: int, now: int) -> int:
    split = table.splits[split_id]
    slots = np.arange(split["start"], split["stop"]) + table.n_leafs
    sources = table.src[slots]
    sizes = np.minimum(table.n_bytes[sources], 2 * MIB)
    read = int(sizes[sources >= 0].sum())
    wobble = 1 + 0.05 * np.sin(split_id * 12.9898 + step)
    duration = LATENCY_NS + int(read / GPU_BYTES_PER_NS * wobble * table.shape.n_tokens / 1024)
    lane = int(split["backend"])
    recorder.span(SpanKind.WAIT, lane, table.plan_id, split_id, step, now, now + 9_000)
    now += 9_000
    recorder.span(SpanKind.SPLIT, lane, table.plan_id, split_id, step, now, now + duration)
    return now + duration


def run_on_paper(plan_set: PlanSetTable, n_tokens: int = 12) -> TraceSnapshot:
    """One prompt, then tokens, with a mark between them."""
    recorder = Recorder()
    now = record_step(recorder, plan_set.prompt, 0, ORIGIN_NS, plan_set.prompt.shape.n_tokens)
    for step in range(1, n_tokens + 1):
        now = record_step(recorder, plan_set.token, step, now + 20_000, 1)
    return recorder.snapshot()
