"""A Perfetto trace as its generated classes read it, which know nothing of our writer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


class Decoded:
    """A trace with names looked up and begins matched with ends."""

    def __init__(self, data: bytes) -> None:
        self.packets = Trace.FromString(data).packet
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in self.packets
                       if p.HasField("track_descriptor")}  # fmt: skip
        self.names: dict[str, dict[int, str]] = defaultdict(dict)
        self.instants: list[tuple[int, str, dict[str, Any]]] = []
        self.slices: list[dict[str, Any]] = []
        open_slices: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for packet in self.packets:
            self._learn(packet.interned_data)
            if packet.HasField("track_event"):
                self._add(packet, open_slices[packet.track_event.track_uuid])
        assert not any(open_slices.values()), "a slice was never ended"

    def _learn(self, data) -> None:
        for table in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(data, table):
                assert entry.iid not in self.names[table]
                self.names[table][entry.iid] = entry.name
        for entry in data.debug_annotation_string_values:
            self.names["texts"][entry.iid] = entry.str.decode()

    def _add(self, packet, stack: list[dict[str, Any]]) -> None:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_END:
            begun = stack.pop()
            begun["end"] = packet.timestamp
            assert begun["end"] >= begun["start"]
            self.slices.append(begun)
            return
        name = self.names["event_names"][event.name_iid]
        if event.type == TrackEvent.TYPE_INSTANT:
            self.instants.append((packet.timestamp, name, self._args(event)))
            return
        assert not stack, "slices overlap on a track"
        stack.append({
            "name": name, "start": packet.timestamp, "track": event.track_uuid,
            "category": self.names["event_categories"][event.category_iids[0]],
            "args": self._args(event), "correlation": event.correlation_id,
            "flows": list(event.flow_ids), "ended": list(event.terminating_flow_ids),
        })  # fmt: skip

    def _args(self, event) -> dict[str, Any]:
        args = {}
        for annotation in event.debug_annotations:
            which = annotation.WhichOneof("value")
            value = getattr(annotation, which)
            name = self.names["debug_annotation_names"][annotation.name_iid]
            args[name] = self.names["texts"][value] if which == "string_value_iid" else value
        return args
