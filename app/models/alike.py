"""Which splits are alike: the same device, the same work, another layer. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.models.plan_words import first_computed

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.core.table import PlanTable

_NUMBER = re.compile(r"\d+")
_MIN_FOLDED = 4


class _Kind(NamedTuple):
    device: str
    n_nodes: int
    first_name: str
    """Of the first node, without its numbers."""


class Fold(NamedTuple):
    """Splits [start, stop): each is like the one `period` before it."""

    start: int
    stop: int
    period: int


def split_kinds(table: PlanTable) -> npt.NDArray[np.int64]:
    """A number for each split, equal for splits that are alike.

    Alike are splits of one device and as many nodes whose first nodes have one name but for its
    numbers. Bytes do not count: what a first layer copies in, later ones find there.
    """
    kinds: dict[_Kind, int] = {}
    column = [
        kinds.setdefault(_kind(table, split_id, first), len(kinds))
        for split_id, first in enumerate(first_computed(table).tolist())
    ]
    return np.array(column, np.int64)


def folds(table: PlanTable, kinds: npt.NDArray[np.int64]) -> tuple[Fold, ...]:
    """Runs of at least a layer's splits that repeat the layer before."""
    period = _splits_a_layer(table)
    if period == 0 or len(kinds) < 2 * period:
        return ()
    same = np.concatenate((np.zeros(period, np.bool_), kinds[period:] == kinds[:-period], [False]))
    edges = np.flatnonzero(np.diff(same.astype(np.int8)))
    runs = zip(edges[::2] + 1, edges[1::2] + 1, strict=True)
    shortest = max(period, _MIN_FOLDED)
    return tuple(Fold(int(a), int(b), period) for a, b in runs if b - a >= shortest)


def alike_ids(kinds: npt.NDArray[np.int64], split_id: int) -> npt.NDArray[np.int64]:
    """All splits like one, itself included."""
    ids: npt.NDArray[np.int64] = np.flatnonzero(kinds == kinds[split_id])
    return ids


def alike_in(other: PlanTable, table: PlanTable, split_id: int) -> npt.NDArray[np.int64]:
    """The splits of another plan that are like one of `table`."""
    wanted = _kind(table, split_id, int(first_computed(table)[split_id]))
    first = first_computed(other).tolist()
    sizes = other.splits["stop"] - other.splits["start"]
    near = np.flatnonzero(sizes == wanted.n_nodes).tolist()
    return np.array([i for i in near if _kind(other, i, first[i]) == wanted], np.int64)


def _kind(table: PlanTable, split_id: int, first: int) -> _Kind:
    """The kind of a split whose first computed node is `first`."""
    split = table.splits[split_id]
    name = _NUMBER.sub("#", table.name[table.slot(first)])
    n_nodes = int(split["stop"] - split["start"])
    return _Kind(table.devices[int(split["backend"])].name, n_nodes, name)


def _splits_a_layer(table: PlanTable) -> int:
    """How many splits most layers begin; 0 when no two layers agree."""
    layers = Counter(table.layer[table.splits["start"]].tolist())
    counts = Counter(layers.values())
    if not counts:
        return 0
    period, n_layers = counts.most_common(1)[0]
    return period if n_layers > 1 else 0
