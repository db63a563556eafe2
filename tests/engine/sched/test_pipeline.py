"""Several graphs in flight: slots, events, and what a recording shows of them."""

import itertools

from engine.core.behaviour import CURRENT, GGML_0_13
from engine.core.tensor import Flag
from tests.engine.sched.bench import Bench, on_cpu, on_gpu
from tests.engine.sched.drawn import GPU1_BUFT, constant, cpu, given, gpu

EVENTS = {"asynchronous": True, "events": True}


def two_gpus(**caps):
    return Bench(gpu("GPU0"), gpu("GPU1"), cpu(), n_copies=4, **{**EVENTS, **caps})


def chain():
    """x ──► a [GPU0] ──► b [GPU1]"""
    return on_gpu("b", on_gpu("a", given("x")), GPU1_BUFT)


def waits(calls):
    return [call for call in calls if call.startswith("event_")]


def test_each_backend_with_events_has_one_a_slot():
    bench = two_gpus()

    assert [c for c in bench.calls if c.startswith("event_new")] == [
        *(f"event_new GPU0 ev{i}" for i in range(4)),
        *(f"event_new GPU1 ev{i}" for i in range(4, 8)),
    ]


def test_the_slots_go_round():
    bench = two_gpus()

    slots = [bench.alloc(chain()).plan.copy_slot for _ in range(6)]

    assert slots == [0, 1, 2, 3, 0, 1]


def test_a_wait_while_no_graph_is_allocated_begins_with_slot_0_again():
    bench = two_gpus()
    bench.alloc(chain())
    bench.scheduler.synchronize()
    kept = bench.alloc(chain()).plan.copy_slot

    bench.scheduler.reset()
    bench.scheduler.synchronize()

    assert (kept, bench.alloc(chain()).plan.copy_slot) == (1, 0)


def test_events_of_the_slot_guard_copies_and_are_recorded_after_each_split():
    calls = two_gpus(cpyasync=True).run(chain())

    assert waits(calls) == [
        "event_synchronize GPU0 ev0", "event_record GPU0 ev0",
        "event_wait GPU1 ev4", "event_record GPU1 ev4",
    ]  # fmt: skip
    assert not any(call.startswith("synchronize") for call in calls)


def test_the_older_version_records_an_event_only_after_a_split_with_inputs():
    """a [GPU0] reads weights only."""
    a = on_gpu("a", constant("x"))

    now = two_gpus(behaviour=CURRENT).run(a)
    then = two_gpus(behaviour=GGML_0_13).run(a)

    assert [waits(now), waits(then)] == [["event_record GPU0 ev0"], []]


def test_the_older_version_does_not_wait_before_a_split_without_inputs():
    """a [GPU0], then b [CPU], which reads nothing of a."""
    bench = Bench(gpu(), cpu(), behaviour=GGML_0_13)

    calls = bench.run(on_gpu("a", given("x")), on_cpu("b", given("y")))

    assert calls[-2:] == ["graph_compute GPU0 n=1:a", "graph_compute CPU n=1:b"]


def test_backends_without_events_are_waited_for():
    calls = Bench(gpu("GPU0"), gpu("GPU1"), cpu(), n_copies=4).run(chain())

    assert waits(calls) == []
    assert calls[0] == "synchronize GPU0"


def test_every_slot_of_every_copy_has_its_own_place():
    bench = two_gpus()
    allocated = bench.alloc(chain())

    for copy in allocated.plan.trace.cut.copies:
        places = [allocated.place_of(tensor) for tensor in copy.tensors]
        ends = sorted((p.offset, p.offset + copy.n_bytes) for p in places)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


def test_what_the_caller_writes_to_moves_with_the_slot():
    """The input's leaf is the copy of the current slot."""
    bench = two_gpus()
    offsets = []
    for _ in range(4):
        allocated = bench.alloc(chain())
        (x,) = (leaf for leaf in allocated.plan.graph.leafs if leaf.flags & Flag.INPUT)
        offsets.append(allocated.place_of(x).offset)
        assert x.flags == Flag.INPUT  # The planned graph is left as it is.

    assert len(set(offsets)) == 4
