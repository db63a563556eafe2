"""Virtual time: by hand, and for any sequence of calls (what works, waits and links may do)."""

import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.interface import Place, SplitGraph
from engine.backends.null.clock import CALL_NS, HOST, Stream, VirtualClock
from engine.backends.null.reg import NullReg
from engine.core import build
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from tests.engine.paper import parse_virtual


def test_work_begins_when_the_host_asks_and_what_it_waits_for_is_done():
    clock, stream = VirtualClock(now_ns=100), Stream(free_ns=130)

    assert clock.work(10) == (100, 110)
    assert clock.work(10, stream=stream) == (130, 140)
    assert clock.work(10, stream=stream, after_ns=200) == (200, 210)
    assert stream.free_ns == 210
    assert clock.now_ns == 100


def test_a_transfer_takes_the_first_time_in_which_its_link_is_free():
    """Draw what is taken, 0-10 and 30-40, and what comes: 20 fit between, 25 do not.

    ####................####      then  ####++++++++++++++++++++####----->
    """
    clock = VirtualClock()
    way = clock.way("A", "B")
    clock.work(10, way=way)
    clock.work(10, way=way, after_ns=30)

    assert clock.work(25, way=way) == (40, 65)
    assert clock.work(20, way=way) == (10, 30)
    assert clock.work(1, way=way, after_ns=5) == (65, 66)


def test_three_devices_that_send_to_one_take_turns():
    clock = VirtualClock()

    sent = [clock.work(10, way=clock.way(source, "D")) for source in ("A", "B", HOST)]

    assert sent == [(0, 10), (10, 20), (20, 30)]


def test_a_transfer_waits_until_it_can_leave_and_arrive():
    """A sends to B and C sends to D; then A to D has room on both ends from 25 on only.

    A out  ####......####         B in, D in
    D in   ..........  ####....
    """
    clock = VirtualClock()
    clock.work(10, way=clock.way("A", "B"))
    clock.work(5, way=clock.way("A", "B"), after_ns=20)
    clock.work(8, way=clock.way("C", "D"), after_ns=12)

    assert clock.work(6, way=clock.way("A", "D")) == (25, 31)
    assert clock.work(2, way=clock.way("A", "D")) == (10, 12)


def test_the_host_serves_devices_at_once():
    clock = VirtualClock()

    assert clock.work(10, way=clock.way(HOST, "A")) == (0, 10)
    assert clock.work(10, way=clock.way(HOST, "B")) == (0, 10)


def test_what_is_over_does_not_stand_in_the_way():
    clock = VirtualClock()
    way = clock.way("A", "B")
    clock.work(10, way=way)
    clock.wait(10)

    assert clock.work(5, way=way) == (10, 15)


def test_the_host_moves_by_calls_and_by_waits_and_never_back():
    clock = VirtualClock()

    clock.call()
    clock.wait(7_000)
    clock.wait(3)

    assert (clock.now_ns, clock.read()) == (7_000, 7_000)
    clock.call()
    assert clock.now_ns == 7_000 + CALL_NS


def test_a_device_sends_while_it_receives():
    clock = VirtualClock()

    assert clock.work(10, way=clock.way("A", "B")) == (0, 10)
    assert clock.work(10, way=clock.way("B", "A")) == (0, 10)


LINES = (
    "A:gpu:1:preset=cuda,cpyasync=1",
    "B:gpu:1:preset=vulkan,cpyasync=1",
    "C:gpu:1",
    "CPU:cpu:1",
)
PAIR = (0, 1)
"""Those that are asynchronous, have events, and copy to one another."""


@dataclass
class Work:
    """What a call started: its interval, its stream and link, and the host's time at the call."""

    start_ns: int
    end_ns: int
    called_ns: int
    streams: tuple[int, ...]
    link: tuple[int, int] | None = None
    not_before_ns: int = 0


@dataclass
class Machine:
    """Devices on paper, and what was asked of them, told apart from what they say."""

    works: list[Work] = field(default_factory=list)
    host_ns: list[int] = field(default_factory=list)
    guards: dict[int, int] = field(default_factory=dict)
    """By stream: the end of everything that its later work waits for."""
    guarded: dict[int, int] = field(default_factory=dict)
    """By stream: the end of every event that it waits for."""
    recorded: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self.reg = NullReg([parse_virtual(line) for line in LINES])
        devices = self.reg.devices()
        self.backends = [device.init_backend() for device in devices]
        self.places = [Place(device.buffer_type().alloc_buffer(1 << 20), 0) for device in devices]
        self.events = {i: devices[i].event_new() for i in PAIR}

    def end_of(self, stream):
        return max((work.end_ns for work in self.works if stream in work.streams), default=0)

    def note(self, event, called_ns, streams, link=None, not_before_ns=0):
        seen = []
        event.on_complete(seen.append)
        waits = max([self.guards.get(i, 0) for i in streams], default=0)
        self.works.append(Work(*seen[0][:2], called_ns, streams, link, max(waits, not_before_ns)))

    def compute(self, i, n):
        # Queued work is far longer than what the host waits for, so that the host stays behind.
        n_elems = 100 * n if i in PAIR else 1
        node = build.rms_norm(Tensor(TensorType.F32, (n_elems, 1, 1, 1)), 1e-5)
        called_ns = self.reg.clock.now_ns
        self.note(self.backends[i].graph_compute(SplitGraph((node,), {})), called_ns, (i,))

    def write(self, i, n):
        called_ns = self.reg.clock.now_ns
        event = self.backends[i].set_tensor_async(self.places[i], np.zeros(n, np.uint8))
        is_queued = self.backends[i].device.facts.caps.asynchronous
        link = None if i == len(LINES) - 1 else (-1, i)
        self.note(event, called_ns, (i,) if is_queued else (), link)

    def write_at_once(self, i, n):
        called_ns = self.reg.clock.now_ns
        event = self.places[i].buffer.set_tensor(0, np.zeros(n, np.uint8))
        self.note(event, called_ns, (), None if i == len(LINES) - 1 else (-1, i))
        assert self.reg.clock.now_ns >= self.works[-1].end_ns

    def read(self, i, n):
        called_ns = self.reg.clock.now_ns
        event = self.places[i].buffer.get_tensor(0, np.empty(n, np.uint8))
        self.note(event, called_ns, (), None if i == len(LINES) - 1 else (i, -1))
        assert self.reg.clock.now_ns >= self.works[-1].end_ns

    def copy(self, i, n):
        target, source = PAIR[i % 2], PAIR[1 - i % 2]
        called_ns = self.reg.clock.now_ns
        event = self.backends[target].cpy_tensor_async(
            self.backends[source], self.places[source], self.places[target], n
        )
        before_ns = self.guarded.get(target, 0)
        self.note(event, called_ns, (source,), (source, target), before_ns)
        self.guards[target] = max(self.guards.get(target, 0), self.works[-1].end_ns)

    def record(self, i, n):
        i = PAIR[i % 2]
        self.backends[i].event_record(self.events[i])
        self.recorded[i] = max(self.end_of(i), self.guards.get(i, 0))

    def wait_for_event(self, i, n):
        # Its own now and then: that guards what the other one copies here.
        waiter, event = PAIR[i % 2], PAIR[i % 2 if n == 1 else 1 - i % 2]
        self.backends[waiter].event_wait(self.events[event])
        end_ns = self.recorded.get(event, 0)
        self.guards[waiter] = max(self.guards.get(waiter, 0), end_ns)
        self.guarded[waiter] = max(self.guarded.get(waiter, 0), end_ns)

    def synchronize(self, i, n):
        self.backends[i].synchronize()
        assert self.reg.clock.now_ns >= max(self.end_of(i), self.guards.get(i, 0))

    def synchronize_event(self, i, n):
        i = PAIR[i % 2]
        self.events[i].synchronize()
        assert self.reg.clock.now_ns >= self.recorded.get(i, 0)


QUEUING = (
    Machine.compute, Machine.write, Machine.copy, Machine.record, Machine.wait_for_event,
)  # fmt: skip
BLOCKING = (
    Machine.write_at_once, Machine.read, Machine.synchronize, Machine.synchronize_event,
)  # fmt: skip
CALLS = (*QUEUING * 3, *BLOCKING)
SEQUENCES = st.lists(
    st.tuples(
        st.sampled_from(CALLS),
        st.sampled_from((0, 1, 0, 1, 2, 3)),
        st.sampled_from((1, 50_000, 2_000_000)),
    ),
    min_size=30,
    max_size=60,
)
"""(call, device, size): most are of the two devices that overlap."""


def done(sequence):
    machine = Machine()
    for call, i, n in sequence:
        call(machine, i, n)
        machine.host_ns.append(machine.reg.clock.now_ns)
    return machine


def assert_apart(works):
    ordered = sorted(works, key=lambda work: work.start_ns)
    for earlier, later in itertools.pairwise(ordered):
        assert earlier.end_ns <= later.start_ns


@given(SEQUENCES)
def test_work_of_one_stream_and_into_or_out_of_one_device_never_overlaps_itself(sequence):
    machine = done(sequence)

    for stream in range(len(LINES)):
        assert_apart([work for work in machine.works if stream in work.streams])
    moves = [work for work in machine.works if work.link is not None]
    for device in range(len(LINES)):
        assert_apart([work for work in moves if work.link[0] == device])
        assert_apart([work for work in moves if work.link[1] == device])


@given(SEQUENCES)
def test_nothing_begins_before_it_was_asked_for_or_before_what_it_waits_for(sequence):
    for work in done(sequence).works:
        assert work.start_ns >= max(work.called_ns, work.not_before_ns)
        assert work.end_ns > work.start_ns


@given(SEQUENCES)
def test_the_host_never_goes_back(sequence):
    host_ns = done(sequence).host_ns

    assert host_ns == sorted(host_ns)


@given(SEQUENCES)
def test_the_host_waits_for_a_device_that_is_not_asynchronous(sequence):
    machine = done(sequence)

    for work in machine.works:
        if not any(stream in PAIR for stream in work.streams):
            assert work.end_ns <= machine.host_ns[-1]


@given(SEQUENCES)
def test_the_same_calls_take_the_same_time(sequence):
    assert done(sequence).works == done(sequence).works
