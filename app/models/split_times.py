"""How long each split of a plan took, from the spans of a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.plan import Batch
from engine.trace.metrics import statistics, statistics_by_id, union_ns
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.core.table import PlanTable
    from engine.trace.metrics import Statistics


@dataclass(frozen=True, slots=True, eq=False)
class SplitTimes:
    """Times of one plan's splits and copies; NaN where nothing was measured.

    A prompt is read once, in one step or several: its figures are sums over them. A token's are
    medians over `n_steps`. `wall_ns` is that of the whole prompt, also of the steps that other
    plans have had, where steps overlap their union; or the median of a token's steps.
    """

    n_steps: int
    is_median: bool
    split_ns: npt.NDArray[np.float64]
    copy_ns: npt.NDArray[np.float64]
    wall_ns: float
    spans: Spans
    """The plan's own spans."""

    def of_splits(self, split_ids: npt.NDArray[np.int64]) -> Statistics | None:
        """Statistics of several splits over all steps."""
        return statistics(self.split_spans(split_ids))

    def split_spans(self, split_ids: npt.NDArray[np.int64]) -> Spans:
        """The spans of several splits."""
        is_split = self.spans["kind"] == SpanKind.SPLIT
        found: Spans = self.spans[is_split & np.isin(self.spans["index"], split_ids)]
        return found


def split_times(spans: Spans, plan: PlanTable) -> SplitTimes | None:
    """The times of a plan; None when no span belongs to it."""
    mine = spans[(spans["plan_id"] == plan.plan_id) & (spans["kind"] != SpanKind.NODE)]
    if not len(mine):
        return None
    is_median = plan.batch is Batch.TOKEN
    return SplitTimes(
        n_steps=max(len(np.unique(mine["step"])), 1),
        is_median=is_median,
        split_ns=_column(mine, SpanKind.SPLIT, len(plan.splits), is_median=is_median),
        copy_ns=_column(mine, SpanKind.COPY, len(plan.copies), is_median=is_median),
        wall_ns=_wall_ns(mine if is_median else spans, is_median=is_median),
        spans=mine,
    )


def _wall_ns(spans: Spans, *, is_median: bool) -> float:
    kind = StepKind.TOKEN if is_median else StepKind.PROMPT
    steps = spans[(spans["kind"] == SpanKind.STEP) & (spans["peer"] == kind)]
    if not len(steps):
        return np.nan
    if is_median:
        return float(np.median(steps["end_ns"] - steps["start_ns"]))
    return float(union_ns(steps["start_ns"], steps["end_ns"]))


def _column(spans: Spans, kind: SpanKind, n: int, *, is_median: bool) -> npt.NDArray[np.float64]:
    column = np.full(n, np.nan)
    for (_, index), found in statistics_by_id(spans, kind).items():
        column[index] = found.p50_ns if is_median else found.sum_ns
    return column
