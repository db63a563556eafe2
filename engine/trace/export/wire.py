"""Protobuf's wire format, the part that is needed to write. Source: protobuf.dev, "Encoding"."""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(field: int, value: int) -> bytes:
    """A field of type uint32, uint64, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def sint(field: int, value: int) -> bytes:
    """A field of type int32 or int64, which writes negative numbers as 64-bit complement."""
    return uint(field, value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field of type string."""
    return message(field, content.encode("utf-8", "replace"))
