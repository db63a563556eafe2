import numpy as np
import pytest

from app.models.split_times import split_times
from engine.trace.records import SPAN_DTYPE, SpanKind, StepKind
from tests.app.models import paper_run
from tests.engine.sched.expert_run import expert_run

MS = 1_000_000


def spans_of(plan, rows):
    """Rows of (kind, index, step, start ms, end ms)."""
    made = np.zeros(len(rows), SPAN_DTYPE)
    for span, (kind, index, step, start, end) in zip(made, rows, strict=True):
        span["kind"], span["index"], span["step"] = kind, index, step
        span["start_ns"], span["end_ns"] = start * MS, end * MS
        span["plan_id"] = plan.plan_id
        span["peer"] = StepKind.PROMPT if plan.batch == "prompt" else StepKind.TOKEN
    return made


def test_a_prompt_read_in_two_steps_has_the_sum_of_both():
    plan = paper_run.plans().prompt
    spans = spans_of(plan, [(SpanKind.SPLIT, 3, 0, 0, 2), (SpanKind.SPLIT, 3, 1, 5, 9)])

    times = split_times(spans, plan)

    assert times.split_ns[3] == 6 * MS
    assert not times.is_median


def test_a_token_has_the_median_over_its_steps():
    plan = paper_run.plans().token
    rows = [(SpanKind.SPLIT, 0, i, 10 * i, 10 * i + took) for i, took in enumerate((1, 2, 9))]

    times = split_times(spans_of(plan, rows), plan)

    assert times.split_ns[0] == 2 * MS
    assert times.n_steps == 3


def test_a_split_without_a_span_has_no_time_rather_than_none_at_all():
    plan = paper_run.plans().prompt

    times = split_times(spans_of(plan, [(SpanKind.SPLIT, 3, 0, 0, 2)]), plan)

    assert np.isnan(times.split_ns[4])


def test_a_trace_of_another_plan_gives_no_times():
    spans = spans_of(paper_run.plans().token, [(SpanKind.SPLIT, 0, 0, 0, 1)])

    assert split_times(spans, paper_run.plans().prompt) is None


def test_the_wall_time_is_that_of_the_steps():
    plan_set = paper_run.plans()
    trace = paper_run.run_on_paper(plan_set)
    steps = trace.of_kind(SpanKind.STEP)
    prompt = steps[steps["peer"] == StepKind.PROMPT]

    times = split_times(trace.spans(), plan_set.prompt)

    assert times.wall_ns == pytest.approx((prompt["end_ns"] - prompt["start_ns"]).sum())
    assert times.of_splits(np.array([99])).n == 1


def test_the_wall_time_of_steps_that_overlap_is_their_union():
    plan = paper_run.plans().prompt
    rows = [
        (SpanKind.STEP, 0, 0, 0, 10),
        (SpanKind.STEP, 1, 1, 4, 14),
        (SpanKind.STEP, 2, 2, 20, 21),
    ]

    assert split_times(spans_of(plan, rows), plan).wall_ns == 15 * MS


def test_pieces_of_a_copy_in_one_step_are_one_time():
    table, recorder = expert_run((7, 1, 5, 2))
    spans = recorder.snapshot().spans()
    up = spans[(spans["kind"] == SpanKind.COPY) & (spans["index"] == 0)]

    times = split_times(spans, table)

    assert len(up) == 3
    assert times.copy_ns[0] == (up["end_ns"] - up["start_ns"]).sum()
