"""What an exported trace says of devices that work at once; read back from both formats."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from numpy import array

from engine.trace.export.chrome import document
from engine.trace.export.meta import CopyMeta, LaneMeta, PlanMeta, SplitMeta, TraceMeta
from engine.trace.export.perfetto import packets
from engine.trace.records import HOST_LANE, MEMBER_LANE, SpanKind, StepKind
from engine.trace.snapshot import TraceSnapshot
from tests.engine.trace.drawn import exchange, shard, span, spans_of
from tests.engine.trace.export.decoded import Decoded

META, CPU = 0, 1
M0, M1 = MEMBER_LANE, MEMBER_LANE + 1

META_SPANS = spans_of(
    span(SpanKind.STEP, 0, 900, lane=HOST_LANE, peer=StepKind.TOKEN, n_bytes=1),
    span(SpanKind.SPLIT, 0, 50, lane=CPU, index=0),
    span(SpanKind.COPY, 50, 150, lane=META, peer=CPU, index=0, n_bytes=400),
    span(SpanKind.SPLIT, 200, 800, lane=META, index=1),
    shard(M0, 1, 200, 600),
    shard(M1, 1, 300, 650),
    exchange(M1, M0, 1, 650, 700, n_bytes=100),
)
PIPELINE_SPANS = spans_of(
    *(
        span(
            SpanKind.STEP,
            100 * i,
            100 * i + 250,
            lane=HOST_LANE,
            peer=StepKind.PROMPT,
            index=i,
            step=i,
        )
        for i in range(3)
    ),
    *(span(SpanKind.SPLIT, 100 * i, 100 * i + 100, lane=0, index=0, step=i) for i in range(3)),
    *(span(SpanKind.SPLIT, 100 * i + 120, 100 * i + 220, lane=1, index=1, step=i) for i in (0, 1)),
)


@pytest.fixture
def meta() -> TraceMeta:
    members = (LaneMeta("CUDA0", "one card", "GPU"), LaneMeta("CUDA1", "another", "GPU"))
    plan = PlanMeta(
        splits=(SplitMeta("embd"), SplitMeta("norm-0 +9", 10)), copies=(CopyMeta("embd", 1, 0),)
    )
    return TraceMeta((LaneMeta("META", "two cards", "META", members), LaneMeta("CPU")), {7: plan})


def slices_by_place(meta, spans):
    """Return (process, thread) -> (name, category, args) of slices, from Chrome's form."""
    loaded = json.loads("".join(document(meta, TraceSnapshot((spans,)))))
    events = loaded["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = defaultdict(list)
    for e in (e for e in events if e["ph"] == "X"):
        found[named[e["pid"]], threads[e["tid"]]].append((e["name"], e["cat"], e["args"]))
    return dict(found), list(named.values()), loaded["metadata"]


def test_members_are_processes_behind_what_joins_them_with_their_shares_and_links(meta):
    found, processes, _ = slices_by_place(meta, META_SPANS)

    assert processes == ["Splitscope", "META", "CUDA0", "CUDA1", "CPU"]
    assert set(found) == {
        ("Splitscope", "steps"), ("CPU", "splits"), ("META", "splits"),
        ("META", "copies from CPU"), ("CUDA0", "shares"), ("CUDA0", "exchanges from CUDA1"),
        ("CUDA1", "shares"),
    }  # fmt: skip
    assert found["CUDA1", "shares"] == [
        ("norm-0 +9", "share", {"share of split": 1, "plan": 7, "step": 0})
    ]


def test_what_shares_hand_over_says_from_where_to_where_and_how_fast(meta):
    found, *_ = slices_by_place(meta, META_SPANS)

    ((name, category, args),) = found["CUDA0", "exchanges from CUDA1"]
    assert (name, category) == ("exchange in norm-0 +9", "exchange")
    assert args == {
        "split": 1, "from": "CUDA1", "into": "CUDA0", "plan": 7, "step": 0, "bytes": 100,
        "MiB/s": 1907.3, "GB/s": 2.0,
    }  # fmt: skip


def test_the_whole_trace_says_how_long_devices_computed_at_once_and_what_links_moved(meta):
    *_, metadata = slices_by_place(meta, META_SPANS)

    assert metadata["overlap_ns"] == metadata["overlap_ns CUDA0 and CUDA1"] == 300
    assert metadata["link CPU to META"] == "1 copy, 400 bytes, 4.000 GB/s while busy"
    assert metadata["link CUDA1 to CUDA0"] == "1 copy, 100 bytes, 2.000 GB/s while busy"


def test_perfetto_has_the_same_tracks_and_figures(meta):
    decoded = Decoded(b"".join(packets(meta, TraceSnapshot((META_SPANS,)))))

    names = {track.uuid: track.name for track in decoded.tracks.values()}
    by_track = {(names[s["track"]], s["name"]) for s in decoded.slices if s["category"] != "step"}
    assert by_track == {
        ("splits", "embd"), ("splits", "norm-0 +9"), ("copies from CPU", "embd"),
        ("shares", "norm-0 +9"), ("exchanges from CUDA1", "exchange in norm-0 +9"),
    }  # fmt: skip
    described = {track.name: track.description for track in decoded.tracks.values()}
    assert described["copies from CPU"] == (
        "Inputs of splits arriving: 1 copy, 400 bytes, 4.000 GB/s while busy"
    )
    ((_, _, about),) = decoded.instants
    assert about["overlap_ns"] == 300


def test_overlapping_steps_are_on_child_tracks_in_both_formats():
    meta = TraceMeta((LaneMeta("GPU0"), LaneMeta("GPU1")))

    found, _, metadata = slices_by_place(meta, PIPELINE_SPANS)
    decoded = Decoded(b"".join(packets(meta, TraceSnapshot((PIPELINE_SPANS,)))))

    steps = {place[1]: [s[0] for s in mine] for place, mine in found.items() if "steps" in place[1]}
    assert steps == {"steps": ["prompt 0"], "steps (2)": ["prompt 1"], "steps (3)": ["prompt 2"]}
    by_name = {track.name: track for track in decoded.tracks.values()}
    assert by_name["steps (3)"].parent_uuid == by_name["steps"].uuid
    assert metadata["overlap_ns"] == decoded.instants[0][2]["overlap_ns"] == 180


def test_devices_that_take_turns_have_no_overlap():
    spans = array(PIPELINE_SPANS[[0, 3]])

    *_, metadata = slices_by_place(TraceMeta((LaneMeta("GPU0"),)), spans)

    assert metadata["overlap_ns"] == 0
    assert not [name for name in metadata if name.startswith(("overlap_ns ", "link "))]
