"""The file is read by Perfetto's generated classes, which know nothing of our writer."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from engine.trace.export.meta import TraceMeta
from engine.trace.export.perfetto import packets, write_perfetto
from engine.trace.records import SpanKind
from engine.trace.snapshot import TraceSnapshot
from tests.engine.trace.export.decoded import Decoded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def decoded(meta, snapshot) -> Decoded:
    return Decoded(b"".join(packets(meta, snapshot)))


def test_there_is_one_slice_a_span_and_durations_are_exact(decoded, snapshot):
    told = Counter((s["category"], s["end"] - s["start"]) for s in decoded.slices)

    spans = snapshot.spans()
    assert told == Counter(
        (SpanKind(kind).name.lower(), duration)
        for kind, duration in zip(
            spans["kind"].tolist(), (spans["end_ns"] - spans["start_ns"]).tolist(), strict=True
        )
    )


def test_starts_are_relative_to_the_first_time(decoded, snapshot):
    starts = snapshot.spans()["start_ns"]

    expected = sorted((starts - starts.min()).tolist())
    assert sorted(s["start"] for s in decoded.slices) == expected


def test_times_of_a_track_never_go_back(meta, snapshot):
    last: dict[int, int] = {}
    for packet in Trace.FromString(b"".join(packets(meta, snapshot))).packet:
        if packet.HasField("track_event") and packet.track_event.type != TrackEvent.TYPE_INSTANT:
            track = packet.track_event.track_uuid
            assert packet.timestamp >= last.get(track, 0)
            last[track] = packet.timestamp


def test_tracks_are_under_their_process_in_order_and_explained(decoded):
    tree = defaultdict(list)
    for track in sorted(decoded.tracks.values(), key=lambda t: t.sibling_order_rank):
        parent = decoded.tracks.get(track.parent_uuid)
        tree[parent.name if parent else ""].append(track.name)
        assert track.description

    assert tree == {
        "": ["Splitscope", "OpenCL0", "CPU"],
        "Splitscope": ["marks", "steps", "waits"],
        "OpenCL0": ["splits", "copies from CPU"],
        "copies from CPU": ["copies from CPU (2)"],
        "CPU": ["splits", "nodes", "copies from OpenCL0"],
    }


def test_processes_have_distinct_ids_and_the_host_has_the_command(decoded, meta):
    processes = [track.process for track in decoded.tracks.values() if track.HasField("process")]

    assert [process.process_name for process in processes] == ["Splitscope", "OpenCL0", "CPU"]
    assert len({process.pid for process in processes}) == 3
    assert list(processes[0].cmdline) == [meta.command]


def test_every_event_is_on_a_known_track(decoded):
    assert {s["track"] for s in decoded.slices} <= set(decoded.tracks)


def test_flows_lead_from_split_to_copy_to_split(decoded):
    ends = {flow: s for s in decoded.slices for flow in s["ended"]}
    paths = defaultdict(list)
    for s in sorted(decoded.slices, key=lambda s: s["start"]):
        for flow in s["flows"]:
            paths[flow].append(s["name"])
    for flow, path in paths.items():
        path.append(ends.pop(flow)["name"])

    assert not ends
    assert Counter(map(tuple, paths.values())) == {
        ("OpenCL0#inp_tokens#0", "attn_norm-0 +3"): 2,
        ("attn_norm-0 +3", "CPU#ffn_norm-0#0", "ffn_up-0"): 2,
        ("ffn_up-0", "OpenCL0#ffn_up-0#0", "ffn_out-0"): 2,
        ("OpenCL0#ffn_down.weight#0", "ffn_out-0"): 2,
    }


def test_arguments_come_back_as_they_were(decoded):
    node = next(s for s in decoded.slices if s["name"] == "MUL_MAT ffn_up-0")
    copy = next(s for s in decoded.slices if s["name"] == "OpenCL0#ffn_up-0#0")

    assert node["args"] == {
        "node": 0, "op": "MUL_MAT", "split": 1, "cause": "1.wgt0", "plan": 3, "step": 0
    }  # fmt: skip
    assert copy["args"]["MiB/s"] == 1e6
    assert copy["args"]["bytes"] == 1 << 20


def test_the_same_split_of_two_steps_is_correlated_and_others_are_not(decoded):
    by_item = defaultdict(set)
    for s in decoded.slices:
        if s["category"] != "step":
            by_item[s["category"], s["name"]].add(s["correlation"])
    wait = by_item.pop(("wait", "wait for OpenCL0"))

    assert len(wait) == 1
    assert all(len(numbers) == 1 for numbers in by_item.values())
    assert len(set.union(*by_item.values())) == len(by_item)


def test_marks_are_instants_and_the_first_tells_how_the_trace_was_made(decoded, meta):
    (t_first, _, about), (t_mark, text, _) = decoded.instants

    assert (t_first, about["command"], about["lost_spans"]) == (0, meta.command, 4)
    assert (t_mark, text) == (10_000, "op_offload off")


def test_the_first_packet_clears_the_state_and_times_have_a_clock(decoded):
    first, clocks = decoded.packets[0], decoded.packets[1].clock_snapshot

    assert first.first_packet_on_sequence
    assert first.sequence_flags == 1
    assert first.trace_packet_defaults.timestamp_clock_id == 3
    assert {clock.clock_id: clock.timestamp for clock in clocks.clocks} == {3: 0, 6: 0}
    assert {p.trusted_packet_sequence_id for p in decoded.packets if p.HasField("track_event")} == {
        1
    }


def test_an_empty_trace_can_be_written(tmp_path: Path):
    write_perfetto(tmp_path / "t.pftrace", TraceMeta(), TraceSnapshot())

    decoded = Decoded((tmp_path / "t.pftrace").read_bytes())
    assert decoded.slices == []
    assert [name for _, name, _ in decoded.instants] == ["trace begins"]
