"""Protobuf's wire format, the part that is needed to write. Source: protobuf.dev, "Encoding"."""

from __future__ import annotations

import struct
from functools import cache

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SMALL = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, lowest first."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def tag(field: int, wire_type: int = _VARINT) -> bytes:
    """What precedes a field's value."""
    return varint(field << 3 | wire_type)


def uint(field: int, value: int) -> bytes:
    """A field of type uint32, uint64, bool or enum."""
    return tag(field) + varint(value)


def sint(field: int, value: int) -> bytes:
    """A field of type int32 or int64, which writes negative numbers as 64-bit complement."""
    return uint(field, value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return tag(field, _FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return tag(field, _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return tag(field, _LENGTH) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field of type string."""
    return message(field, content.encode("utf-8", "replace"))
