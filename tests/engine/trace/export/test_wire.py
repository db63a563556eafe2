from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    DebugAnnotation,
    TracePacket,
    TrackEvent,
)

from engine.trace.export import wire


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_number_is_what_protobuf_writes(value):
    assert wire.uint(3, value) == DebugAnnotation(uint_value=value).SerializeToString()


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_signed_number_is_what_protobuf_writes(value):
    assert wire.sint(4, value) == DebugAnnotation(int_value=value).SerializeToString()


@given(st.floats(allow_nan=False))
def test_a_double_is_what_protobuf_writes(value):
    assert wire.double(5, value) == DebugAnnotation(double_value=value).SerializeToString()


@given(st.text(max_size=300))
def test_a_text_is_what_protobuf_writes(value):
    assert wire.text(10, value) == DebugAnnotation(name=value).SerializeToString()


def test_fields_with_large_numbers_are_what_protobuf_writes():
    flow, first = TrackEvent(flow_ids=[2**60 + 1]), TracePacket(first_packet_on_sequence=True)

    assert wire.fixed64(47, 2**60 + 1) == flow.SerializeToString()
    assert wire.uint(87, 1) == first.SerializeToString()


def test_a_lone_surrogate_does_not_stop_an_export():
    assert wire.text(1, "a\udc80") == b"\x0a\x02a?"
