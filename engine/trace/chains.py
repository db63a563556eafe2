"""Chains: what each span waited for, and so what held up a device at any moment. Pure.

A span begins when the last of the things that it waits for is done. Walking from one to that which
ended last gives a chain of pieces without gaps; time in which nothing that it waits for runs is
the host's. What a span waits for:

    split   its copies, and the work before it on its lane
    copy    the split that made its tensor, the work before it on its source, the copy before it
            into the same split, and the work on its target that may read what it overwrites
    both    what the host did before it queued them: planning, waits, splits that it computed
            itself; the step before or, in a pipeline, the one whose slot is used again
    share   the shares and exchanges before it within its split, then what that waits for

A wait of the host stands for the work that it waited for, where that is known.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.devices import DeviceType
from engine.trace.lanes import Thing, device_lanes, joined_lanes
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.core.table import PlanTable
    from engine.trace.records import Spans

_HOST_TYPES = (DeviceType.CPU, DeviceType.ACCEL)
"""Devices that compute on the host's thread."""

_KINDS = tuple(SpanKind)

_INNER = (SpanKind.SHARD, SpanKind.EXCHANGE)

_BEFORE_SPLITS = -1

Key = tuple[int, ...]


class Piece(NamedTuple):
    """A piece of a chain. `thing` is None for the host between steps.

    `step` is the one that it belongs to; between steps the one that follows.
    """

    start_ns: int
    end_ns: int
    thing: Thing | None
    step: int


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


class Chains:
    """What the spans of a trace waited for.

    `spans` hold whole steps, together with those that overlap them. Of plans that are not among
    `plans` copies are not known to belong to a split.
    """

    def __init__(self, spans: Spans, plans: Mapping[int, PlanTable]) -> None:
        self.spans = spans[spans["kind"] != SpanKind.NODE]
        """All but those of single nodes."""
        self.lanes = device_lanes(self.spans)
        """The devices that computed."""
        self.plans = plans
        rows = _rows_of(self.spans, plans)
        of_kind = _grouped(rows, lambda row: row.kind)
        self.steps = {row.step: row for row in of_kind[SpanKind.STEP]}
        """The finished steps."""
        self._frames = sorted(self.steps.values(), key=lambda row: (row.start_ns, row.step))
        self._starts = [row.start_ns for row in self._frames]
        self._ends = sorted((row.end_ns, row.step) for row in self._frames)
        self._splits = _grouped(of_kind[SpanKind.SPLIT], lambda row: row.split_key)
        copies = sorted(of_kind[SpanKind.COPY], key=lambda row: row.start_ns)
        self._copies = _grouped(copies, lambda row: row.split_key)
        self._copy_before = {
            id(later): earlier
            for mine in self._copies.values()
            for earlier, later in pairwise(mine)
        }
        inner = sorted(
            (row for row in rows if row.kind in _INNER), key=lambda row: (row.end_ns, row.start_ns)
        )
        self._inner = _grouped(inner, lambda row: row.split_key)
        self._joined = frozenset(joined_lanes(self.spans))
        work = [row for row in rows if row.kind in (SpanKind.SPLIT, SpanKind.SHARD)]
        by_lane = _grouped(work, lambda row: row.lane)
        nothing = _Queue(())
        queues = {lane: _Queue(mine) for lane, mine in by_lane.items()}
        self._queues: defaultdict[int, _Queue] = defaultdict(lambda: nothing, queues)
        self._host = _Queue(row for row in rows if self._is_of_host(row))
        self._last = _last_by_step([*of_kind[SpanKind.SPLIT], *of_kind[SpanKind.COPY]])
        self._producers: dict[tuple[int, int], int | None] = {}
        self._beginnings: dict[Key, Row] = {}
        self._known: dict[tuple[int, int], Row | None] = {}

    def work_on(self, lane: int) -> list[Row]:
        """What a device computed, by start."""
        mine = [row for row in self._queues[lane].rows if not self._is_joint(row)]
        return sorted(mine, key=lambda row: (row.start_ns, row.end_ns))

    def before(self, row: Row, until_ns: int) -> Iterator[Piece]:
        """The chain that led to a span, from its start backwards to `until_ns`, without gaps."""
        yield from self._walk(row, row.start_ns, until_ns, self._cause(row, row.start_ns, set()))

    def before_end(self, step: int) -> Iterator[Piece]:
        """The chain that led to the end of a finished step, backwards to its start."""
        frame = self.steps[step]
        yield from self._walk(frame, frame.end_ns, frame.start_ns, self._last.get(step))

    # Walking.

    def _walk(self, row: Row, at_ns: int, until_ns: int, cause: Row | None) -> Iterator[Piece]:
        """Pieces from `at_ns` backwards, where `row` waited for `cause`."""
        seen: set[int] = set()
        while cause is not None and at_ns > until_ns:
            end_ns = max(min(cause.end_ns, at_ns), until_ns)
            yield from self._gap(row, end_ns, at_ns)
            row, at_ns = cause, end_ns
            last = self._last_inside(cause, end_ns)
            start_ns = min(cause.start_ns, end_ns) if last is None else min(last.end_ns, end_ns)
            start_ns = max(start_ns, until_ns)
            if start_ns < end_ns:
                yield Piece(start_ns, end_ns, cause.thing, cause.step)
            at_ns = start_ns
            seen.add(id(cause))
            cause = self._cause(cause, at_ns, seen) if last is None else last
        if at_ns > until_ns:
            yield from self._gap(row, until_ns, at_ns)

    def _gap(self, row: Row, start_ns: int, end_ns: int) -> Iterator[Piece]:
        """Time before `row` in which nothing that it waited for ran."""
        if start_ns >= end_ns:
            return
        if row.kind in _INNER and row.split_key in self._splits:
            split = self._splits[row.split_key][0]
            yield Piece(start_ns, end_ns, split.thing, split.step)
        else:
            yield from self._host_pieces(start_ns, end_ns, row.step)

    def _host_pieces(self, start_ns: int, end_ns: int, step: int) -> Iterator[Piece]:
        """The host's time: within steps, `step` before others, and between them."""
        while end_ns > start_ns:
            frame = self._frame_at(end_ns, step)
            if frame is None:
                yield Piece(start_ns, end_ns, None, step)
                return
            if frame.end_ns < end_ns:
                yield Piece(max(frame.end_ns, start_ns), end_ns, None, step)
                end_ns = max(frame.end_ns, start_ns)
            begin_ns = max(frame.start_ns, start_ns)
            if begin_ns < end_ns:
                yield Piece(begin_ns, end_ns, frame.thing, frame.step)
            end_ns = min(begin_ns, end_ns)

    def _frame_at(self, end_ns: int, step: int) -> Row | None:
        """The step whose time ends at `end_ns` or holds it; else the last that begins before."""
        mine = self.steps.get(step)
        if mine is not None and mine.start_ns < end_ns <= mine.end_ns:
            return mine
        i = bisect.bisect_left(self._starts, end_ns)
        return self._frames[i - 1] if i else None

    def _last_inside(self, row: Row, at_ns: int) -> Row | None:
        """Of a split that only its members compute, the share or exchange that ended last."""
        return _latest(self._inner.get(row.split_key, ()), at_ns) if self._is_joint(row) else None

    def _is_joint(self, row: Row) -> bool:
        """Whether it is a split of a META device."""
        return row.kind == SpanKind.SPLIT and row.lane in self._joined

    # Causes.

    def _cause(self, row: Row, at_ns: int, seen: set[int]) -> Row | None:
        """What ended last of the things that had to be done before `at_ns`, the start of `row`."""
        key = (id(row), at_ns)
        if key not in self._known:
            self._known[key] = _latest(self._causes(row, at_ns), at_ns)
        cause = self._known[key]
        if cause is None or id(cause) not in seen:
            return cause
        fitting = [other for other in self._causes(row, at_ns) if id(other) not in seen]
        return _latest(fitting, at_ns)

    def _causes(self, row: Row, at_ns: int) -> Iterator[Row]:
        if row.kind in _INNER:
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
        key = inner.split_key
        if key not in self._beginnings and key in self._splits:
            split = self._splits[key][0]
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
            plan = self.plans.get(copy.plan_id)
            self._producers[key] = None if plan is None else plan.producer(copy.item_id)
        return self._producers[key]

    def _n_copies(self, row: Row) -> int:
        plan = self.plans.get(row.plan_id)
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
        plan = self.plans.get(row.plan_id)
        if row.kind != SpanKind.SPLIT or plan is None or row.lane >= len(plan.devices):
            return False
        return plan.devices[row.lane].type in _HOST_TYPES


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
