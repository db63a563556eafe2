"""The names beside an exported trace."""

from dataclasses import replace

from engine.core.devices import DeviceType
from engine.core.options import Options
from engine.report.trace_names import trace_meta
from engine.session import Session
from engine.trace.records import MEMBER_LANE
from tests.engine.nano import nano
from tests.engine.trace.drawn import plan


def test_names_of_lanes_splits_copies_and_nodes_come_from_the_plans():
    session = Session(virtual=["GPU0:gpu:100:preset=cuda"])
    session.open(nano())
    options = Options(n_gpu_layers=2, n_ctx=256)
    plan = session.plan(options).prompt
    session.close()

    meta = trace_meta({plan.plan_id: plan}, options, "nano.gguf")

    named = meta.plans[plan.plan_id]
    assert [lane.name for lane in meta.lanes] == ["GPU0", "CPU"]
    assert meta.command == "nano.gguf -ngl 2 -c 256"
    assert ("-ngl", "2") in meta.options
    assert [split.n_nodes for split in named.splits] == [
        int(row["stop"] - row["start"]) for row in plan.splits
    ]
    assert [node.name for node in named.nodes] == list(plan.name)[plan.n_leafs :]
    for copy, row in zip(named.copies, plan.copies, strict=True):
        assert copy.consumer == row["split"]
        assert copy.producer is None or copy.producer < copy.consumer
    assert any(copy.producer is not None for copy in named.copies)


def test_members_of_a_meta_device_have_lanes_of_their_own():
    table = plan()
    gpu, other, cpu = table.devices
    joint = replace(gpu, name="META", type=DeviceType.META, members=(gpu, other))

    meta = trace_meta({1: replace(table, devices=(joint, cpu))}, Options(), "nano.gguf")

    assert {lane: meta.lane(lane).name for lane in (0, 1, MEMBER_LANE, MEMBER_LANE + 1)} == {
        0: "META", 1: "CPU", MEMBER_LANE: "GPU0", MEMBER_LANE + 1: "GPU1"
    }  # fmt: skip
    assert [lane.name for lane in meta.known_lanes().values()] == ["META", "GPU0", "GPU1", "CPU"]
    assert meta.lane(MEMBER_LANE + 2).name == f"lane {MEMBER_LANE + 2}"


def test_a_run_that_met_no_plan_has_no_lanes():
    assert trace_meta({}, Options(), "x").lanes == ()
