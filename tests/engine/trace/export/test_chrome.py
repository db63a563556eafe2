"""The file is read back with exact decimals and held against the format's nesting rules."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from engine.trace.export.chrome import document, write_chrome
from engine.trace.export.meta import TraceMeta
from engine.trace.records import SpanKind
from engine.trace.snapshot import TraceSnapshot

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "t": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
}


def load(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return loaded


@pytest.fixture
def loaded(meta, snapshot) -> dict[str, Any]:
    return load("".join(document(meta, snapshot)))


def events(loaded: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in loaded["traceEvents"] if event["ph"] == phase]


def test_every_event_has_the_fields_of_its_phase_and_no_others(loaded):
    for event in loaded["traceEvents"]:
        assert set(event) == REQUIRED[event["ph"]] | {"ph"}


def test_there_is_one_slice_a_span_and_durations_are_exact(loaded, snapshot):
    told = Counter((event["cat"], int(event["dur"] * 1000)) for event in events(loaded, "X"))

    spans = snapshot.spans()
    assert told == Counter(
        (SpanKind(kind).name.lower(), duration)
        for kind, duration in zip(
            spans["kind"].tolist(), (spans["end_ns"] - spans["start_ns"]).tolist(), strict=True
        )
    )


def test_times_are_microseconds_with_three_decimals_from_zero(loaded, snapshot):
    starts = snapshot.spans()["start_ns"]

    told = [event["ts"] for event in events(loaded, "X")]
    assert {ts.as_tuple().exponent for ts in told} == {-3}
    assert sorted(int(ts * 1000) for ts in told) == sorted((starts - starts.min()).tolist())


def test_slices_of_a_thread_do_not_overlap(loaded):
    last_end: dict[int, Decimal] = defaultdict(Decimal)
    for event in events(loaded, "X"):
        assert event["ts"] >= last_end[event["tid"]]
        last_end[event["tid"]] = event["ts"] + event["dur"]


def test_threads_and_processes_have_names_and_an_order(loaded):
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events(loaded, "M")
        if event["name"] in ("process_name", "thread_name")
    }
    processes = [name for (_, tid), name in names.items() if tid == 0]
    threads = [tid for _, tid in names if tid]

    assert processes == ["Splitscope", "OpenCL0", "CPU"]
    assert len(set(threads)) == len(threads)
    assert {(event["pid"], event["tid"]) for event in events(loaded, "X")} <= set(names)
    ordered = [event for event in events(loaded, "M") if event["name"].endswith("_sort_index")]
    assert len(ordered) == len(names)


def test_each_flow_begins_goes_on_and_ends_inside_a_slice(loaded):
    slices = defaultdict(list)
    for event in events(loaded, "X"):
        slices[event["tid"]].append(event)
    paths = defaultdict(list)
    for phase in "stf":
        for event in events(loaded, phase):
            assert (event["cat"], event["name"]) == ("copy", "copy")
            around = [
                s["name"] for s in slices[event["tid"]]
                if s["ts"] <= event["ts"] <= s["ts"] + s["dur"] and s["ts"] == event["ts"]
            ]  # fmt: skip
            assert len(around) == 1
            paths[event["id"]].append((phase, around[0]))

    assert Counter(tuple(path) for path in paths.values()) == {
        (("s", "OpenCL0#inp_tokens#0"), ("f", "attn_norm-0 +3")): 2,
        (("s", "attn_norm-0 +3"), ("t", "CPU#ffn_norm-0#0"), ("f", "ffn_up-0")): 2,
        (("s", "ffn_up-0"), ("t", "OpenCL0#ffn_up-0#0"), ("f", "ffn_out-0")): 2,
        (("s", "OpenCL0#ffn_down.weight#0"), ("f", "ffn_out-0")): 2,
    }
    assert {event["bp"] for event in events(loaded, "f")} == {"e"}


def test_arguments_and_marks_come_back_as_they_were(loaded):
    node = next(e for e in events(loaded, "X") if e["name"] == "MUL_MAT ffn_up-0")
    (mark,) = events(loaded, "i")

    assert node["args"] == {
        "node": 0, "op": "MUL_MAT", "split": 1, "cause": "1.wgt0", "plan": 3, "step": 0
    }  # fmt: skip
    assert (mark["name"], mark["ts"], mark["s"]) == ("op_offload off", Decimal("10.000"), "t")


def test_metadata_tells_how_the_trace_was_made_and_what_devices_are(loaded, meta):
    metadata = loaded["metadata"]

    assert metadata["command"] == meta.command
    assert metadata["about OpenCL0"] == 'GPU, PoCL "cpu"'
    assert metadata["lost_spans"] == 4


def test_an_empty_trace_can_be_written(tmp_path: Path):
    write_chrome(tmp_path / "t.json", TraceMeta(), TraceSnapshot())

    loaded = load((tmp_path / "t.json").read_text("utf-8"))
    assert events(loaded, "X") == []
    assert loaded["displayTimeUnit"] == "ns"
