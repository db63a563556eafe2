"""The rows of the split table: order, folding, sorting. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.models.plan_words import first_computed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from app.models.alike import Fold
    from app.models.split_times import SplitTimes
    from engine.core.table import PlanTable


class Column(enum.IntEnum):
    """The columns of the table."""

    ID = 0
    DEVICE = 1
    NAME = 2
    NODES = 3
    KIB = 4
    MS = 5


class Row(NamedTuple):
    """A split, or a line that stands for the folded splits [start, stop)."""

    split_id: int
    start: int = -1
    stop: int = -1
    period: int = 0

    @property
    def is_group(self) -> bool:
        """Whether it stands for several."""
        return self.split_id < 0


def folded_rows(
    n_splits: int, folds: Sequence[Fold], *, opened: Collection[int], pinned: int
) -> list[Row]:
    """All splits in order, folds as one line each.

    `opened` has the `start` of folds that are spread out below their line. A `pinned` split inside
    a fold keeps a row of its own, so that a selection never hides.
    """
    rows: list[Row] = []
    at = 0
    for fold in folds:
        rows += [Row(i) for i in range(at, fold.start)]
        if fold.start in opened:
            rows.append(Row(-1, fold.start, fold.stop, fold.period))
            rows += [Row(i) for i in range(fold.start, fold.stop)]
        else:
            rows += _closed(fold, pinned)
        at = fold.stop
    return rows + [Row(i) for i in range(at, n_splits)]


def sorted_rows(
    table: PlanTable, times: SplitTimes | None, column: Column, *, descending: bool
) -> list[Row]:
    """All splits by a column, ties in order; splits without a figure come last."""
    keys = _sort_keys(table, times, column)
    n = len(table.splits)
    order = np.lexsort((np.arange(n), -keys if descending else keys))
    return [Row(int(i)) for i in order]


def group_text(row: Row, *, is_open: bool) -> str:
    """The words of a folded line."""
    n = row.stop - row.start
    a_layer = f"{row.period} a layer"
    return f"{n} alike, {a_layer}: fold" if is_open else f"\u2026 {n} more, {a_layer}"


def _closed(fold: Fold, pinned: int) -> list[Row]:
    if not fold.start <= pinned < fold.stop:
        return [Row(-1, fold.start, fold.stop, fold.period)]
    rows = [Row(pinned)]
    if pinned > fold.start:
        rows.insert(0, Row(-1, fold.start, pinned, fold.period))
    if pinned + 1 < fold.stop:
        rows.append(Row(-1, pinned + 1, fold.stop, fold.period))
    return rows


def _sort_keys(
    table: PlanTable, times: SplitTimes | None, column: Column
) -> npt.NDArray[np.float64]:
    splits = table.splits
    if column is Column.MS and times is not None:
        return times.split_ns
    if column is Column.NODES:
        keys = splits["stop"] - splits["start"]
    elif column is Column.KIB:
        keys = splits["bytes"]
    elif column is Column.DEVICE:
        keys = splits["backend"]
    elif column is Column.NAME:
        names = [table.name[slot] for slot in (first_computed(table) + table.n_leafs).tolist()]
        keys = np.argsort(np.argsort(np.array(names), kind="stable"))
    else:
        keys = np.arange(len(splits))
    as_floats: npt.NDArray[np.float64] = keys.astype(np.float64)
    return as_floats
