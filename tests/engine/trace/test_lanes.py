from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.trace.lanes import (
    busy,
    device_lanes,
    merged,
    overlap,
)
from engine.trace.records import MEMBER_LANE, SpanKind
from tests.engine.trace.drawn import CPU, GPU0, GPU1, shard, span, spans_of, split

META, MEMBER_0, MEMBER_1 = 0, MEMBER_LANE, MEMBER_LANE + 1


def test_intervals_that_touch_or_overlap_are_one():
    found = merged(np.array([20, 0, 5, 2, 30]), np.array([25, 5, 9, 4, 29]))

    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([0, 20, 30], [9, 25, 30])
    assert found.total_ns == 14


def test_intervals_are_cut_at_two_moments():
    found = merged(np.array([0, 10, 20]), np.array([5, 15, 25])).within(3, 12)

    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([3, 10], [5, 12])


def test_no_spans_have_no_devices_and_no_overlap():
    assert device_lanes(spans_of()) == ()
    assert busy(spans_of()) == {}
    assert overlap(spans_of()).total_ns == 0


def test_devices_that_compute_at_once_overlap():
    """GPU0 [0 .... 40], GPU1 [30 .... 60], CPU [35 .. 38]."""
    spans = spans_of(split(1, 0, 40), split(2, 30, 60), split(0, 35, 38))

    found = overlap(spans)

    assert found.total_ns == 10
    assert found.pairs == {(GPU0, GPU1): 10, (GPU0, CPU): 3, (GPU1, CPU): 3}


def test_devices_that_take_turns_do_not_overlap():
    found = overlap(spans_of(split(1, 0, 40), split(2, 40, 60)))

    assert (found.total_ns, found.pairs) == (0, {})


def test_the_members_of_a_meta_device_are_devices_and_it_is_none():
    """The split on the META device covers both shares."""
    spans = spans_of(
        span(SpanKind.SPLIT, 0, 50, lane=META, index=1),
        shard(MEMBER_0, 1, 0, 30),
        shard(MEMBER_1, 1, 10, 45),
        span(SpanKind.SPLIT, 50, 60, lane=CPU, index=2),
    )

    assert device_lanes(spans) == (CPU, MEMBER_0, MEMBER_1)
    assert overlap(spans).pairs == {(MEMBER_0, MEMBER_1): 20}


def test_a_device_that_waits_for_rows_of_its_split_is_not_busy_meanwhile():
    """GPU0's split 1 has rows on GPU1; its split of the next step has none."""
    spans = spans_of(
        split(1, 0, 50), shard(GPU0, 1, 0, 20), shard(GPU1, 1, 10, 45), split(1, 60, 70, step=1)
    )

    assert {lane: when.total_ns for lane, when in busy(spans).items()} == {GPU0: 30, GPU1: 35}
    assert overlap(spans).total_ns == 10


def test_a_split_in_which_nothing_is_computed_makes_no_lane_a_devices():
    spans = spans_of(
        span(SpanKind.SPLIT, 0, 50, lane=META, index=1), shard(MEMBER_0, 1, 0, 50),
        span(SpanKind.SPLIT, 60, 60, lane=META, index=2),
    )  # fmt: skip

    assert device_lanes(spans) == (MEMBER_0,)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 15)), max_size=25
    )
)  # fmt: skip
def test_overlap_is_the_number_of_units_in_which_several_compute(rows):
    spans = spans_of(*(span(SpanKind.SPLIT, s, s + n, lane=lane) for lane, s, n in rows))
    units = {
        lane: {unit for x, s, n in rows if x == lane for unit in range(s, s + n)}
        for lane in range(4)
    }

    found = overlap(spans)

    at_once = [sum(unit in mine for mine in units.values()) for unit in range(60)]
    assert found.total_ns == sum(n >= 2 for n in at_once)
    both = {pair: len(units[pair[0]] & units[pair[1]]) for pair in combinations(range(4), 2)}
    assert found.pairs == {pair: n for pair, n in both.items() if n}
