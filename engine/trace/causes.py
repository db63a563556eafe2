"""Causes: what each span of a trace waited for. Pure.

A span begins when the last of the things that it waits for is done:

    split   its copies, and the work before it on its lane
    copy    the split that made its tensor, the work before it on its source, the copy before it
            into the same split, and the work on its target that may read what it overwrites
    both    what the host did before it queued them: planning, waits, splits that it computed
            itself; the step before or, in a pipeline, the one whose slot is used again
    share   the shares and exchanges before it within its split, then what that waits for

A wait of the host stands for the work that it waited for, where that is known. A split of which
there are shares is joint: it ends with the last of what is in it.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.devices import HOST_TYPES
from engine.trace.lanes import Thing
from engine.trace.records import HOST_LANE, SpanKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.core.table import PlanTable
    from engine.trace.records import Spans

_KINDS = tuple(SpanKind)

INNER = (SpanKind.SHARD, SpanKind.EXCHANGE)
"""What a split that several devices share is made of."""

_BEFORE_SPLITS = -1

Key = tuple[int, ...]


class Row(NamedTuple):
    """A span as Python numbers.

    `split_id` is the split that it is, serves or is part of; -1 for planning and steps.
    """

    kind: int
    lane: int
    peer: int
    plan_id: int
    item_id: int
    step: int
    start_ns: int
    end_ns: int
    split_id: int

    @property
    def thing(self) -> Thing:
        """What it measured."""
        return Thing(_KINDS[self.kind], self.lane, self.plan_id, self.item_id, self.step)

    @property
    def launching(self) -> Thing:
        """The host's part of it: launching what a split is made of."""
        return self.thing._replace(lane=HOST_LANE)

    @property
    def order(self) -> tuple[float, ...]:
        """Its place in the order in which the host queued things."""
        return self.step, self.split_id, self.start_ns

    @property
    def split_key(self) -> Key:
        """Which split of which step it is, serves or is part of."""
        return self.plan_id, self.step, self.split_id


class _Queue:
    """Rows in the order in which the host queued them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.order)
        self._orders = [row.order for row in self.rows]

    def before(self, row: Row) -> Iterator[Row]:
        """The rows queued before `row`, the last first; of its own split only what began before."""
        for i in reversed(range(bisect.bisect_left(self._orders, row.order))):
            yield self.rows[i]

    def up_to(self, row: Row) -> Iterator[Row]:
        """The rows queued before `row` or for the same split, the last first."""
        latest = (row.step, row.split_id, math.inf)
        for i in reversed(range(bisect.bisect_right(self._orders, latest))):
            yield self.rows[i]


class Causes:
    """What the spans of a trace waited for, from their rows and the plans that are known.

    Of plans that are not among `plans` copies are not known to belong to a split.
    """

    def __init__(self, spans: Spans, plans: Mapping[int, PlanTable]) -> None:
        self._plans = plans
        rows = _rows_of(spans, plans)
        of_kind = _grouped(rows, lambda row: row.kind)
        self.steps = {row.step: row for row in of_kind[SpanKind.STEP]}
        """The finished steps."""
        self._ends = sorted((row.end_ns, row.step) for row in self.steps.values())
        self._splits = _grouped(of_kind[SpanKind.SPLIT], lambda row: row.split_key)
        self._take_copies(of_kind[SpanKind.COPY])
        inner = [*of_kind[SpanKind.SHARD], *of_kind[SpanKind.EXCHANGE]]
        inner.sort(key=lambda row: (row.end_ns, row.start_ns))
        self._inner = _grouped(inner, lambda row: row.split_key)
        self._joint = frozenset(row.split_key for row in of_kind[SpanKind.SHARD])
        self._take_work(of_kind[SpanKind.SPLIT], of_kind[SpanKind.SHARD])
        self._host = _Queue(row for row in rows if self._is_of_host(row))
        self._last = _last_by_step([*of_kind[SpanKind.SPLIT], *of_kind[SpanKind.COPY]])
        self._producers: dict[tuple[int, int], int | None] = {}
        self._beginnings: dict[Key, Row] = {}
        self._known: dict[tuple[int, int], Row | None] = {}

    def _take_copies(self, copies: list[Row]) -> None:
        copies = sorted(copies, key=lambda row: row.start_ns)
        self._copies = _grouped(copies, lambda row: row.split_key)
        self._copy_before = {
            id(later): earlier
            for mine in self._copies.values()
            for earlier, later in pairwise(mine)
        }

    def _take_work(self, splits: list[Row], shards: list[Row]) -> None:
        """What was queued on each lane; the shares of a split on its own lane are that split."""
        lanes_of = defaultdict(set)
        for split in splits:
            lanes_of[split.split_key].add(split.lane)
        shares = [row for row in shards if row.lane not in lanes_of[row.split_key]]
        by_lane = _grouped([*splits, *shares], lambda row: row.lane)
        nothing = _Queue(())
        queues = {lane: _Queue(mine) for lane, mine in by_lane.items()}
        self._queues: defaultdict[int, _Queue] = defaultdict(lambda: nothing, queues)
        work = (row for row in (*splits, *shards) if not self.is_joint(row))
        self._work = _grouped(work, lambda row: row.lane)

    def work_on(self, lane: int) -> list[Row]:
        """What a device computed, by start."""
        return sorted(self._work[lane], key=lambda row: (row.start_ns, row.end_ns))

    def last_of(self, step: int) -> Row | None:
        """The split or copy of a step that ended last."""
        return self._last.get(step)

    def is_joint(self, row: Row) -> bool:
        """Whether it is a split that devices share: then its shares compute and it does not."""
        return row.kind == SpanKind.SPLIT and row.split_key in self._joint

    def last_inside(self, row: Row, at_ns: int) -> Row | None:
        """Of a joint split the share or exchange that ended last before a moment."""
        return _latest(self._inner.get(row.split_key, ()), at_ns) if self.is_joint(row) else None

    def split_around(self, inner: Row) -> Row | None:
        """The split of a share or exchange, where its span is there."""
        found = self._splits.get(inner.split_key)
        return found[0] if found else None

    def of(self, row: Row, at_ns: int, seen: set[int]) -> Row | None:
        """What ended last of the things that had to be done before `at_ns`, the start of `row`.

        Rows whose `id` is among `seen` do not count.
        """
        key = (id(row), at_ns)
        if key not in self._known:
            self._known[key] = _latest(self._causes(row, at_ns), at_ns)
        cause = self._known[key]
        if cause is None or id(cause) not in seen:
            return cause
        fitting = [other for other in self._causes(row, at_ns) if id(other) not in seen]
        return _latest(fitting, at_ns)

    def _causes(self, row: Row, at_ns: int) -> Iterator[Row]:
        if row.kind in INNER:
            yield from self._inner_before(row, at_ns)
            yield from self._beginning(row)
            return
        if row.kind == SpanKind.SPLIT:
            yield from self._copies.get(row.split_key, ())
            yield from _first(self._queues[row.lane].before(row))
        elif row.kind == SpanKind.COPY:
            yield from self._causes_of_copy(row)
        yield from self._by_host(row, at_ns)
        yield from self._steps_before(row)

    def _inner_before(self, row: Row, at_ns: int) -> Iterator[Row]:
        """The share or exchange that ended last in its split before, and all that did so now."""
        mine = self._inner[row.split_key]
        for i in reversed(range(bisect.bisect_right(mine, at_ns, key=lambda x: x.end_ns))):
            if mine[i] is not row:
                yield mine[i]
            if mine[i].end_ns < at_ns:
                return

    def _beginning(self, inner: Row) -> Iterator[Row]:
        """The moment at which the split of a share begins, which waits for what the split does."""
        key, split = inner.split_key, self.split_around(inner)
        if key not in self._beginnings and split is not None:
            self._beginnings[key] = split._replace(end_ns=split.start_ns)
        if key in self._beginnings:
            yield self._beginnings[key]

    def _causes_of_copy(self, copy: Row) -> Iterator[Row]:
        producer = self._producer(copy)
        if producer is not None:
            yield from self._splits.get((copy.plan_id, copy.step, producer), ())
        yield from _first(self._queues[copy.peer].before(copy))
        if id(copy) in self._copy_before:
            yield self._copy_before[id(copy)]
        first_of_slot = copy.step - self._n_copies(copy)
        on_target = self._queues[copy.lane].before(copy)
        yield from _first(x for x in on_target if not first_of_slot < x.step < copy.step)

    def _producer(self, copy: Row) -> int | None:
        key = (copy.plan_id, copy.item_id)
        if key not in self._producers:
            plan = self._plans.get(copy.plan_id)
            self._producers[key] = None if plan is None else plan.producer(copy.item_id)
        return self._producers[key]

    def _n_copies(self, row: Row) -> int:
        plan = self._plans.get(row.plan_id)
        return 1 if plan is None else plan.n_copies

    def _by_host(self, row: Row, at_ns: int) -> Iterator[Row]:
        """The last thing that the host did before it queued `row`, or what it waited for then."""
        for done in self._host.up_to(row):
            if done is not row and done.start_ns < at_ns:
                awaited = self._awaited(done) if done.kind == SpanKind.WAIT else None
                yield done if awaited is None else awaited
                return

    def _awaited(self, wait: Row) -> Row | None:
        """What a lane finished during a wait for it."""
        for work in self._queues[wait.lane].before(wait):
            if work.end_ns <= wait.start_ns:
                return None
            if work.end_ns <= wait.end_ns:
                return work
        return None

    def _steps_before(self, row: Row) -> Iterator[Row]:
        """The end of the step before; in a pipeline, of the one that had the same slot."""
        frame, n_copies = self.steps.get(row.step), self._n_copies(row)
        if frame is not None:
            i = bisect.bisect_right(self._ends, (frame.start_ns, row.step))
            if i and self._ends[i - 1][1] in self._last:
                yield self._last[self._ends[i - 1][1]]
        if n_copies > 1 and row.step - n_copies in self._last:
            yield self._last[row.step - n_copies]

    def _is_of_host(self, row: Row) -> bool:
        """Whether the host's thread did it itself."""
        if row.kind in (SpanKind.PLAN, SpanKind.WAIT):
            return True
        plan = self._plans.get(row.plan_id)
        if row.kind != SpanKind.SPLIT or plan is None or row.lane >= len(plan.devices):
            return False
        return plan.devices[row.lane].type in HOST_TYPES


def _rows_of(spans: Spans, plans: Mapping[int, PlanTable]) -> list[Row]:
    """The spans as rows."""
    names = ("kind", "lane", "peer", "plan_id", "index", "step", "start_ns", "end_ns")
    consumers = {plan_id: plan.copies["split"].tolist() for plan_id, plan in plans.items()}
    rows = []
    for values in zip(*(spans[name].tolist() for name in names), strict=True):
        kind, _, _, plan_id, item_id, *_ = values
        split_id = item_id
        if kind in (SpanKind.STEP, SpanKind.PLAN):
            split_id = _BEFORE_SPLITS
        elif kind == SpanKind.COPY:
            split_id = consumers[plan_id][item_id] if plan_id in consumers else _BEFORE_SPLITS
        rows.append(Row._make((*values, split_id)))
    return rows


def _grouped(rows: Iterable[Row], key_of: Callable[[Row], Any]) -> defaultdict[Any, list[Row]]:
    groups: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key_of(row)].append(row)
    return groups


def _last_by_step(rows: Iterable[Row]) -> dict[int, Row]:
    """What ended last in each step."""
    last: dict[int, Row] = {}
    for row in rows:
        known = last.get(row.step)
        if known is None or (known.end_ns, known.split_id) <= (row.end_ns, row.split_id):
            last[row.step] = row
    return last


def _latest(rows: Iterable[Row], at_ns: int) -> Row | None:
    """Of the rows that were done at a moment the one that ended last; a clock may be off a bit."""
    latest, latest_ns = None, 0
    for row in rows:
        if row.start_ns >= at_ns and row.end_ns > at_ns:
            continue
        end_ns = min(row.end_ns, at_ns)
        if latest is None or (end_ns, row.start_ns) > (latest_ns, latest.start_ns):
            latest, latest_ns = row, end_ns
    return latest


def _first(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        yield row
        return
