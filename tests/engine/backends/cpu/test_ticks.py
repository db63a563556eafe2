"""Ticks become times of the host's clock, split by split."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.ticks import ANCHOR_WORDS, host_times, is_steady, new_ticks


def split(ticks, *anchors_ns):
    """Ticks of a split with the clock before and behind its first and last one."""
    found = new_ticks(len(ticks) - 1)
    found[:-ANCHOR_WORDS], found[-ANCHOR_WORDS:] = ticks, anchors_ns
    return found


def test_ticks_are_interpolated_between_the_middles_of_the_readings_around_their_ends():
    times = host_times(split([7000, 7300, 7600, 10_000], 100, 120, 1110, 1110))

    assert times.ns.tolist() == [110, 210, 310, 1110]


def test_the_error_is_half_of_the_longer_pair_rounded_up():
    assert host_times(split([0, 10], 100, 121, 200, 204)).error_ns == 11
    assert host_times(split([0, 10], 100, 102, 200, 241)).error_ns == 21


def test_a_counter_of_many_years_loses_no_ns():
    start = 2**61

    times = host_times(split([start, start + 3, start + 3_000_000], 5, 5, 1_000_005, 1_000_005))

    assert times.ns.tolist() == [5, 6, 1_000_005]


def test_a_counter_that_stands_still_gives_the_start():
    assert host_times(split([9, 9, 9], 50, 50, 70, 70)).ns.tolist() == [50, 50, 50]


def test_times_never_go_back():
    ticks = np.cumsum(np.random.default_rng(0).integers(0, 50, 400)) + 10**12

    times = host_times(split(ticks, 10, 30, 7777, 7790))

    assert (np.diff(times.ns) >= 0).all()
    assert times.ns[0] == 20
    assert times.ns[-1] == 7783


def test_a_counter_is_steady_where_the_processor_says_so():
    steady = "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc sse\n"

    assert is_steady("x86_64", "linux", steady)
    assert is_steady("AMD64", "win32", "")
    assert not is_steady("x86_64", "linux", steady.replace("nonstop_tsc", ""))
    assert not is_steady("x86_64", "linux", "")
    assert not is_steady("aarch64", "linux", steady)
