"""The event of work that several devices do."""

import itertools

import pytest

from engine.backend.interface import Completion, Event, ShardTime
from engine.backends.meta.events import JointEvent, Work


class Pending(Event):
    """Work that is done when the test says so. It may not be asked while it tells."""

    def __init__(self, start_ns, end_ns):
        self._completion = Completion(start_ns, end_ns)
        self._fns = []
        self._is_telling = False
        self.is_done = False

    def synchronize(self):
        """Be done."""
        self.finish()

    def on_complete(self, fn):
        """Keep `fn`, or call it."""
        assert not self._is_telling
        self._fns.append(fn)
        if self.is_done:
            self.finish()

    def finish(self):
        """Tell whoever asked."""
        self.is_done, self._is_telling = True, True
        fns, self._fns = self._fns, []
        for fn in fns:
            fn(self._completion)
        self._is_telling = False


def works():
    """Two stages, an exchange, two stages; the last two end it."""
    events = [Pending(10, 20), Pending(11, 22), Pending(22, 25), Pending(25, 40), Pending(26, 50)]
    return events, [
        Work(events[0], "A"),
        Work(events[1], "B"),
        Work(events[2], "A", "B", 64),
        Work(events[3], "A"),
        Work(events[4], "B"),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(5)))[::7])
def test_it_tells_once_when_everything_is_done_whatever_comes_first(order):
    events, parts = works()
    told = []
    JointEvent(parts, [3, 4]).on_complete(told.append)

    for i_event in order[:-1]:
        events[i_event].finish()
    assert told == []
    events[order[-1]].finish()

    (done,) = told
    assert (done.start_ns, done.end_ns) == (10, 50)
    assert done.shards[2] == ShardTime("A", 22, 25, "B", 64)
    assert [shard.device for shard in done.shards] == ["A", "B", "A", "A", "B"]


def test_whoever_asks_late_is_told_at_once():
    events, parts = works()
    for event in events:
        event.finish()
    told = []

    JointEvent(parts, [3, 4]).on_complete(told.append)

    assert len(told) == 1


def test_waiting_for_it_waits_for_what_ends_every_stream():
    events, parts = works()

    JointEvent(parts, [3, 4]).synchronize()

    assert [event.is_done for event in events] == [False, False, False, True, True]
