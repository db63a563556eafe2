"""Perfetto's own protobuf: nanoseconds, a description on each track, interned names.

Field numbers: perfetto/protos/perfetto/trace/*.proto. A file is a `Trace`, which is nothing but
its packets one after another. All are on one packet sequence, which owns the interned names; those
are written with the first packet that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.trace.export.atomic import write_atomically
from engine.trace.export.labels import Row, Value, label, label_key, measured_args, run_args
from engine.trace.export.layout import HOST_PID, MARKS_TID, Layout, Process, Track, lay_out
from engine.trace.export.wire import double, fixed64, message, sint, tag, text, uint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.trace.export.meta import TraceMeta
    from engine.trace.snapshot import TraceSnapshot

_MONOTONIC, _BOOTTIME = 3, 6
_EXPLICIT_ORDER = 3
_NEVER_MERGE = 2
_BEGIN, _END, _INSTANT = 1, 2, 3
# trusted_packet_sequence_id 1; "needs incremental state", and for the first packet "cleared".
_ON_SEQUENCE = uint(10, 1) + uint(13, 2)
_FIRST_ON_SEQUENCE = uint(10, 1) + uint(13, 1) + uint(87, 1)
_TIMESTAMP = tag(8)
_PROCESS_UUID = 1 << 32
"""Uuids of processes begin here; those of tracks are their tids."""


def write_perfetto(path: Path, meta: TraceMeta, snapshot: TraceSnapshot) -> None:
    """Write a .pftrace that ui.perfetto.dev and Perfetto's trace processor open.

    Raises:
        ExportError: the file cannot be written.
    """
    write_atomically(path, packets(meta, snapshot))


def packets(meta: TraceMeta, snapshot: TraceSnapshot) -> Iterator[bytes]:
    """The file in parts, each one packet or a few."""
    layout = lay_out(meta, snapshot)
    names = _Names()
    yield _clock_packet()
    yield from (_packet(message(60, descriptor)) for descriptor in _descriptors(meta, layout))
    yield from _mark_packets(meta, snapshot, layout, names)
    for process in layout.processes:
        for track in process.tracks:
            yield from _slice_packets(meta, layout, track, names)


def _packet(content: bytes) -> bytes:
    return message(1, content)


def _clock_packet() -> bytes:
    """Times count from 0 on a monotonic clock; boot time, the trace's clock, is set equal."""
    clocks = (message(1, uint(1, clock) + uint(2, 0)) for clock in (_MONOTONIC, _BOOTTIME))
    snapshot = message(6, b"".join(clocks) + uint(2, _BOOTTIME))
    defaults = message(59, uint(58, _MONOTONIC))
    return _packet(_FIRST_ON_SEQUENCE + defaults) + _packet(uint(10, 1) + snapshot)


def _descriptors(meta: TraceMeta, layout: Layout) -> Iterator[bytes]:
    for i_process, process in enumerate(layout.processes):
        yield _process_descriptor(meta, process, i_process)
        for i_track, track in enumerate(process.tracks):
            yield _track_descriptor(process, track, i_track)


def _process_descriptor(meta: TraceMeta, process: Process, rank: int) -> bytes:
    facts = sint(1, process.pid) + text(6, process.name)
    if process.pid == HOST_PID and meta.command:
        facts += text(2, meta.command)
    content = uint(1, _PROCESS_UUID + process.pid) + text(2, process.name) + message(3, facts)
    content += uint(11, _EXPLICIT_ORDER) + sint(12, rank)
    return content + (text(14, process.description) if process.description else b"")


def _track_descriptor(process: Process, track: Track, rank: int) -> bytes:
    parent = _PROCESS_UUID + process.pid if track.parent is None else track.parent
    content = uint(1, track.tid) + text(2, track.name) + uint(5, parent)
    content += uint(11, _EXPLICIT_ORDER) + sint(12, rank)
    return content + text(14, track.description) + uint(15, _NEVER_MERGE)


class _Names:
    """Texts by number. A new one travels with the packet that needs it first."""

    def __init__(self) -> None:
        self._iids: dict[tuple[int, str], int] = {}
        self._new: list[bytes] = []

    def iid(self, table: int, name: str) -> int:
        """The number of a text in the table with this field number in `InternedData`."""
        known = self._iids.get((table, name))
        if known is None:
            known = self._iids[table, name] = len(self._iids) + 1
            self._new.append(message(table, uint(1, known) + text(2, name)))
        return known

    def take_new(self) -> bytes:
        """The field `interned_data` with the texts since the last call."""
        new, self._new = self._new, []
        return message(12, b"".join(new)) if new else b""


_CATEGORIES, _EVENT_NAMES, _ARG_NAMES, _ARG_TEXTS = 1, 2, 3, 29


def _event(names: _Names, time_ns: int, event: bytes) -> bytes:
    """The packet of an event, with the names that it is the first to use."""
    new = names.take_new()
    return _packet(b"".join((_TIMESTAMP, varint(time_ns), _ON_SEQUENCE, new, message(11, event))))


def _titled(names: _Names, name: str, category: str) -> bytes:
    return uint(10, names.iid(_EVENT_NAMES, name)) + uint(3, names.iid(_CATEGORIES, category))


def _annotations(names: _Names, args: dict[str, Value]) -> bytes:
    return b"".join(
        message(4, uint(1, names.iid(_ARG_NAMES, name)) + _annotation_value(names, value))
        for name, value in args.items()
    )


def _annotation_value(names: _Names, value: Value) -> bytes:
    if isinstance(value, str):
        return uint(17, names.iid(_ARG_TEXTS, value))
    return sint(4, value) if isinstance(value, int) else double(5, value)


def _mark_packets(
    meta: TraceMeta, snapshot: TraceSnapshot, layout: Layout, names: _Names
) -> Iterator[bytes]:
    instant = uint(9, _INSTANT) + uint(11, MARKS_TID)
    begins = instant + _titled(names, "trace begins", "mark")
    about = _annotations(names, run_args(meta, snapshot, layout.origin_ns))
    yield _event(names, 0, begins + about)
    for mark in layout.marks:
        yield _event(names, mark.time_ns, instant + _titled(names, mark.text, "mark"))


def _slice_packets(meta: TraceMeta, layout: Layout, track: Track, names: _Names) -> Iterator[bytes]:
    """Begin and end of each slice. Equal times keep the order of the file, so ends come first."""
    begin = uint(9, _BEGIN) + uint(11, track.tid)
    end = message(11, uint(9, _END) + uint(11, track.tid))
    known: dict[tuple[int, ...], bytes] = {}
    for i_row, values in zip(track.rows.tolist(), layout.spans[track.rows].tolist(), strict=True):
        row = Row(*values)
        key = label_key(row)
        if key not in known:
            known[key] = begin + _fixed_fields(names, meta, row)
        measured = _annotations(names, measured_args(row))
        event = b"".join((known[key], measured, _flow_fields(layout, i_row)))
        yield _event(names, row.start_ns, event)
        yield _packet(b"".join((_TIMESTAMP, varint(row.end_ns), _ON_SEQUENCE, end)))


def _fixed_fields(names: _Names, meta: TraceMeta, row: Row) -> bytes:
    """What a slice says in every step alike."""
    words = label(meta, row)
    fields = _titled(names, words.name, words.category) + _annotations(names, words.args)
    return fields + uint(52, _correlation(row))


def _flow_fields(layout: Layout, i_row: int) -> bytes:
    flows = layout.flows
    going_on = (*flows.starts.get(i_row, ()), *flows.steps.get(i_row, ()))
    ended = flows.ends.get(i_row, ())
    return b"".join([*(fixed64(47, i) for i in going_on), *(fixed64(48, i) for i in ended)])


def _correlation(row: Row) -> int:
    """One number for the same split, copy or node of every step: viewers colour them alike."""
    return row.kind + 1 << 56 | (row.plan_id & 0xFF_FFFF) << 32 | row.item_id & 0xFFFF_FFFF
