"""Chrome trace event JSON: read by Perfetto, Tracy's importer, speedscope and others.

Times are microseconds with three decimals, written as text from whole nanoseconds, since a binary
fraction would not be exact. Processes and threads stand for lanes and tracks. What the format has
no place for (descriptions, the command) is in `metadata`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from engine.trace.export.atomic import write_atomically
from engine.trace.export.labels import Label, Row, Value, label, label_key, measured_args, run_args
from engine.trace.export.layout import HOST_PID, MARKS_TID, Layout, Process, Track, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.trace.export.meta import TraceMeta
    from engine.trace.snapshot import TraceSnapshot


def write_chrome(path: Path, meta: TraceMeta, snapshot: TraceSnapshot) -> None:
    """Write a .json that ui.perfetto.dev and most other viewers open.

    Raises:
        ExportError: the file cannot be written.
    """
    write_atomically(path, (part.encode() for part in document(meta, snapshot)))


def document(meta: TraceMeta, snapshot: TraceSnapshot) -> Iterator[str]:
    """The file in parts, one line each."""
    layout = lay_out(meta, snapshot)
    about = run_args(meta, snapshot, layout.origin_ns) | _descriptions(layout)
    yield f'{{"displayTimeUnit":"ns","metadata":{_json(about)},"traceEvents":[\n'
    separator = ""
    for event in _events(meta, layout):
        yield f"{separator}{event}"
        separator = ",\n"
    yield "\n]}\n"


def _events(meta: TraceMeta, layout: Layout) -> Iterator[str]:
    for i_process, process in enumerate(layout.processes):
        yield from _names(process, i_process)
    for mark in layout.marks:
        yield (
            f'{{"ph":"i","s":"t","name":{_json(mark.text)},"cat":"mark","pid":{HOST_PID},'
            f'"tid":{MARKS_TID},"ts":{_us(mark.time_ns)}}}'
        )
    for process in layout.processes:
        for track in process.tracks:
            yield from _slices(meta, layout, process, track)


def _names(process: Process, i_process: int) -> Iterator[str]:
    yield _named("process_name", process.pid, 0, {"name": process.name})
    yield _named("process_sort_index", process.pid, 0, {"sort_index": i_process})
    for i_track, track in enumerate(process.tracks):
        yield _named("thread_name", process.pid, track.tid, {"name": track.name})
        yield _named("thread_sort_index", process.pid, track.tid, {"sort_index": i_track})


def _named(what: str, pid: int, tid: int, args: dict[str, Value]) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{_json(args)}}}'


def _slices(meta: TraceMeta, layout: Layout, process: Process, track: Track) -> Iterator[str]:
    where = f'"pid":{process.pid},"tid":{track.tid}'
    known: dict[tuple[int, ...], tuple[str, str]] = {}
    for i_row, values in zip(track.rows.tolist(), layout.spans[track.rows].tolist(), strict=True):
        row = Row(*values)
        key = label_key(row)
        if key not in known:
            known[key] = _fixed_text(label(meta, row))
        name, args = known[key]
        yield (
            f'{{"ph":"X",{name},{where},"ts":{_us(row.start_ns)},'
            f'"dur":{_us(row.end_ns - row.start_ns)},'
            f'"args":{{{args},{_json(measured_args(row))[1:]}}}'
        )
        yield from _flow_events(layout, i_row, f'{where},"ts":{_us(row.start_ns)}')


def _fixed_text(words: Label) -> tuple[str, str]:
    """Name and category; arguments without their braces."""
    return f'"name":{_json(words.name)},"cat":"{words.category}"', _json(words.args)[1:-1]


def _flow_events(layout: Layout, i_row: int, where: str) -> Iterator[str]:
    """Flow events bind to the slice that is open at their time; they follow it in the file."""
    flows = layout.flows
    for phase, ids in (("s", flows.starts), ("t", flows.steps), ("f", flows.ends)):
        binding = ',"bp":"e"' if phase == "f" else ""
        for flow_id in ids.get(i_row, ()):
            yield f'{{"ph":"{phase}","id":{flow_id},"name":"copy","cat":"copy",{where}{binding}}}'


def _descriptions(layout: Layout) -> dict[str, Value]:
    return {
        f"about {process.name}": process.description
        for process in layout.processes
        if process.description
    }


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


_json = json.JSONEncoder(separators=(",", ":")).encode
