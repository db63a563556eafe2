"""How several devices worked together, from spans written by hand."""

from dataclasses import replace

import pytest

from engine.core.devices import DeviceType
from engine.core.summary import IdleTime, LinkTime, OverlapTime
from engine.report.together import are_several, together
from engine.trace.chains import last_steps
from engine.trace.records import MEMBER_LANE, SpanKind, placed_lanes
from tests.engine.trace.drawn import (
    EMBD,
    GPU0,
    GPU1,
    L_OUT,
    PLAN_ID,
    copy,
    exchange,
    plan,
    planning,
    plans,
    shard,
    span,
    spans_of,
    split,
    step_span,
    wait,
)

ONE_STEP = (
    step_span(0, 100), planning(0, 8), split(0, 10, 20), copy(EMBD, 20, 24, n_bytes=8),
    split(1, 25, 60), copy(L_OUT, 60, 64, n_bytes=12), split(2, 64, 99),
)  # fmt: skip


def found_of(*rows, tables=None, n_copies=1, pipeline_obstacle=""):
    return together(spans_of(*rows), tables or plans(), n_copies, pipeline_obstacle)


def test_devices_have_names_times_and_what_was_at_fault():
    found = found_of(*ONE_STEP)

    assert found.wall_ns == 100
    _, gpu1, cpu = found.devices
    assert (gpu1.name, gpu1.type, gpu1.busy_ns) == ("GPU1", DeviceType.GPU, 35)
    assert gpu1.idle == (
        IdleTime("copy", 8, "copy 0 from CPU, embd", 4),
        IdleTime("device", 45, f"GPU0: split 1, {plan().split_name(1)}", 35),
        IdleTime("host", 11, "planning", 8),
        IdleTime("nothing", 1),
    )
    assert (cpu.name, cpu.idle[-1]) == ("CPU", IdleTime("nothing", 80))
    for device in found.devices:
        assert device.busy_ns + sum(idle.time_ns for idle in device.idle) == found.wall_ns


def test_links_and_overlaps_have_the_names_of_their_devices():
    found = found_of(*ONE_STEP, split(1, 90, 97, step=1), n_copies=4)

    assert found.links == (
        LinkTime("GPU0", "GPU1", 1, 12, 4, 4.0, 4.0),
        LinkTime("CPU", "GPU0", 1, 8, 4, 4.0, 4.0),
    )
    assert found.links[0].gb_per_s == 3.0
    assert found.overlap_ns == 7
    assert found.overlaps == (OverlapTime(("GPU0", "GPU1"), 7),)
    assert (found.n_copies, found.pipeline_obstacle) == (4, "")


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ((step_span(0, 60), split(1, 55, 60)), "launching, inputs and results"),
        ((step_span(0, 1), step_span(50, 60, step=1), split(1, 50, 60, step=1)), "between steps"),
        ((step_span(0, 60), wait(GPU1, 1, 2, 50), split(1, 55, 60)), "waits for GPU1"),
    ],
)
def test_what_the_host_does_has_words(late, words):
    found = found_of(*late, split(2, 0, 1))

    (idle,) = (idle for idle in found.devices[0].idle if idle.cause == "host")
    assert idle.worst == words


def test_members_of_a_meta_device_are_the_devices():
    gpu, other, cpu = plan().devices
    joint = replace(gpu, name="META", type=DeviceType.META, members=(gpu, other))
    tables = {PLAN_ID: replace(plan(), devices=(joint, cpu))}
    rows = (
        step_span(0, 100), span(SpanKind.SPLIT, 0, 90, lane=0, index=1),
        shard(MEMBER_LANE, 1, 0, 50), shard(MEMBER_LANE + 1, 1, 0, 80),
        exchange(MEMBER_LANE + 1, MEMBER_LANE, 1, 80, 85, n_bytes=10),
        shard(MEMBER_LANE, 1, 86, 90), span(SpanKind.SPLIT, 90, 95, lane=1, index=2),
    )  # fmt: skip

    found = found_of(*rows, tables=tables)

    assert [device.name for device in found.devices] == ["GPU0", "GPU1", "CPU"]
    lanes = [(placed.lane, placed.device.name) for placed in placed_lanes((joint, cpu))]
    assert lanes == [(0, "META"), (MEMBER_LANE, "GPU0"), (MEMBER_LANE + 1, "GPU1"), (1, "CPU")]
    by_cause = {idle.cause: idle.worst for idle in found.devices[0].idle}
    assert by_cause["copy"] == f"exchanges in split 1, {plan().split_name(1)}"
    assert by_cause["device"] == f"GPU1: split 1, {plan().split_name(1)}"
    assert by_cause["host"] == f"launching pieces of split 1, {plan().split_name(1)}"
    assert (found.links[0].source, found.links[0].target) == ("GPU1", "GPU0")


def test_one_device_beside_the_cpu_is_not_several():
    rows = (step_span(0, 50), split(0, 0, 10), split(1, 10, 50))

    assert not are_several(spans_of(*rows), plans())
    assert are_several(spans_of(*rows, split(2, 20, 30)), plans())
    assert not are_several(spans_of(), {})


def test_a_source_that_nobody_knows_is_named_by_its_number():
    found = found_of(*ONE_STEP, exchange(255, GPU0, 1, 30, 31))

    assert found.links[-1].source == "lane 255"


def test_of_a_very_long_run_the_last_steps_are_looked_at(monkeypatch):
    monkeypatch.setattr("engine.report.together.last_steps", lambda spans: last_steps(spans, 8))
    rows = []
    for step in range(5):
        at = 100 * step
        rows += [
            step_span(at, at + 90, step=step), split(1, at, at + 40, step=step),
            split(2, at + 40, at + 90, step=step),
        ]  # fmt: skip

    found = found_of(*rows)

    assert (found.n_steps, found.n_run_steps, found.wall_ns) == (2, 5, 190)
    assert [device.busy_ns for device in found.devices] == [80, 100]
