import numpy as np
import pytest

from app.views.graph.columns import shape_of
from app.views.graph.timings import SplitTimes
from engine.trace.records import SpanKind
from engine.trace.snapshot import TraceSnapshot
from tests.app.models.paper_run import plans, run_on_paper


def expected_ms(trace, plan):
    spans = trace.of_kind(SpanKind.SPLIT)
    mine = spans[spans["plan_id"] == plan.plan_id]
    return float((mine["end_ns"] - mine["start_ns"]).sum()) / len(np.unique(mine["step"])) / 1e6


def test_rows_add_up_to_what_the_splits_took():
    trace, times = run_on_paper(plans()), SplitTimes()

    assert times.read(trace)

    for plan in (plans().prompt, plans().token):
        row_ms = times.row_ms(plan, shape_of(plan, 30))
        assert row_ms.sum() == pytest.approx(expected_ms(trace, plan))


def test_reading_piece_by_piece_gives_the_same():
    trace = run_on_paper(plans())
    spans = trace.spans()
    whole, pieces = SplitTimes(), SplitTimes()
    whole.read(trace)

    for stop in (1, 100, 700, len(spans)):
        pieces.read(TraceSnapshot(chunks=(spans[:stop],), seq=stop, epoch=trace.epoch))

    plan = plans().prompt
    shape = shape_of(plan, 30)
    assert np.allclose(pieces.row_ms(plan, shape), whole.row_ms(plan, shape))


def test_a_cleared_trace_starts_anew():
    trace, times = run_on_paper(plans()), SplitTimes()
    times.read(trace)

    assert not times.read(TraceSnapshot(epoch=trace.epoch + 1))

    assert not times.row_ms(plans().prompt, shape_of(plans().prompt, 30)).size


def test_a_plan_that_did_not_run_has_no_times():
    times = SplitTimes()
    times.read(run_on_paper(plans()))
    other = plans(op_offload=False).prompt

    assert not times.row_ms(other, shape_of(other, 30)).size
