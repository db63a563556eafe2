"""Spans written by hand, for the plan of a small model on two GPUs.

Its splits are: 0 on the CPU makes `embd`; 1 on GPU0 reads that and makes `l_out-1`; 2 on GPU1 reads
that. Both GPUs' splits read inputs too, among them `inp_pos`.
"""

import functools
from dataclasses import replace

import numpy as np

from engine.core.options import Options
from engine.core.table import PlanTable
from engine.session import Session
from engine.trace.lanes import Thing
from engine.trace.records import HOST_LANE, NO_EXPERTS, NO_LANE, SPAN_DTYPE, SpanKind, StepKind
from tests.engine.nano import nano

GPU0, GPU1, CPU = range(3)
PLAN_ID = 7
EMBD, POS, L_OUT, POS_1 = 0, 1, 5, 6
"""Copies: into split 1 the first two, into split 2 the others."""


@functools.cache
def plan(*, n_copies: int = 1) -> PlanTable:
    """The plan, in which as many graphs may be under way at once."""
    session = Session(virtual=["GPU0:gpu:100", "GPU1:gpu:100"])
    session.open(nano())
    found = session.plan(Options(n_ctx=256)).prompt
    session.close()
    names = [found.copy_name(copy_id) for copy_id in (EMBD, POS, L_OUT, POS_1)]
    assert names == ["embd", "inp_pos", "l_out-1", "inp_pos"]
    assert [int(split["backend"]) for split in found.splits] == [CPU, GPU0, GPU1]
    return replace(found, plan_id=PLAN_ID, n_copies=n_copies)


def plans(*, n_copies: int = 1) -> dict[int, PlanTable]:
    return {PLAN_ID: plan(n_copies=n_copies)}


def span(kind, start, end, *, lane=0, index=0, step=0, peer=NO_LANE, n_bytes=0, plan_id=PLAN_ID):
    return (kind, lane, peer, 0, plan_id, index, step, start, end, n_bytes, *NO_EXPERTS)


def split(index, start, end, *, step=0):
    return span(SpanKind.SPLIT, start, end, lane=(CPU, GPU0, GPU1)[index], index=index, step=step)


def copy(index, start, end, *, step=0, n_bytes=0):
    row = plan().copies[index]
    return span(
        SpanKind.COPY, start, end, lane=int(row["target"]), index=index, step=step,
        peer=int(row["source"]), n_bytes=n_bytes,
    )  # fmt: skip


def wait(lane, index, start, end, *, step=0):
    return span(SpanKind.WAIT, start, end, lane=lane, index=index, step=step)


def shard(lane, index, start, end, *, step=0):
    return span(SpanKind.SHARD, start, end, lane=lane, index=index, step=step)


def exchange(source, lane, index, start, end, *, step=0, n_bytes=0):
    return span(
        SpanKind.EXCHANGE, start, end, lane=lane, index=index, step=step, peer=source,
        n_bytes=n_bytes,
    )  # fmt: skip


def step_span(start, end, *, step=0, kind=StepKind.PROMPT):
    return span(SpanKind.STEP, start, end, lane=HOST_LANE, index=step, step=step, peer=kind)


def planning(start, end, *, step=0):
    return span(SpanKind.PLAN, start, end, lane=HOST_LANE, index=step, step=step)


def spans_of(*rows):
    return np.array(list(rows), SPAN_DTYPE)


def thing(row) -> Thing:
    """What a span measured."""
    kind, lane, _, _, plan_id, index, step, *_ = row
    return Thing(SpanKind(kind), lane, plan_id, index, step)


def launching(row) -> Thing:
    """What the host does for a split that devices share."""
    return thing(row)._replace(lane=HOST_LANE)
