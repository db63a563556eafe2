"""Perfetto's own protobuf: nanoseconds, a description on each track, interned names.

Field numbers: perfetto/protos/perfetto/trace/*.proto. A file is a `Trace`, which is nothing but
its packets one after another. All are on one packet sequence, which owns the interned names; those
are written with the first packet that needs them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from engine.trace.export.atomic import write_atomically
from engine.trace.export.labels import Row, Value, label, run_args
from engine.trace.export.layout import HOST_PID, Layout, Process, Track, lay_out
from engine.trace.export.wire import double, fixed64, message, sint, text, uint

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
    for rank, process in enumerate(layout.processes):
        yield _process_descriptor(meta, process, rank)
        tracks = process.tracks
        if process.pid == HOST_PID:
            marks = Track(layout.marks_tid, "marks", "What happened when", tracks_rows_none())
            tracks = (marks, *tracks)
        for i_track, track in enumerate(tracks):
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
