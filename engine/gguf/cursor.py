"""Reads that never leave the file: numbers, strings and arrays from a mapped header.

Everything read is a copy, so that metadata outlives the mapping.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from engine.gguf import limits
from engine.gguf.keys import ValueType
from engine.gguf.strings import StringArray

if TYPE_CHECKING:
    from mmap import mmap

    from engine.gguf.faults import Source

Scalar = int | float | bool
NumberArray = npt.NDArray[np.number] | npt.NDArray[np.bool_]

DTYPES: dict[ValueType, np.dtype[np.generic]] = {
    ValueType.UINT8: np.dtype("<u1"),
    ValueType.INT8: np.dtype("<i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("?"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}
"""How a number of each type is stored; strings and arrays are not numbers."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in the header that moves forward.

    `where` names what is being read, for errors; whoever reads keeps it up to date.
    """

    __slots__ = ("_data", "pos", "source", "where")

    def __init__(self, data: bytes | mmap, source: Source) -> None:
        self.pos = 0
        self.source = source
        self.where = "at the start of the file"
        self._data = data

    def need(self, n_bytes: int) -> None:
        """Check that `n_bytes` more are there.

        Raises:
            GgufError: the file ends before.
        """
        if n_bytes > self.source.size - self.pos:
            raise self.source.too_short(n_bytes, at=self.pos, where=self.where)

    def take(self, n_bytes: int) -> bytes:
        """A copy of the next `n_bytes`."""
        self.need(n_bytes)
        start = self.pos
        self.pos = start + n_bytes
        return self._data[start : self.pos]

    def u32(self) -> int:
        """An unsigned number of 4 bytes."""
        (value,) = _U32.unpack(self.take(4))
        return int(value)

    def u64(self) -> int:
        """An unsigned number of 8 bytes."""
        (value,) = _U64.unpack(self.take(8))
        return int(value)

    def count(self, what: str, *, most: int, min_bytes: int) -> int:
        """A number of `what`: at most `most`, each of which takes `min_bytes` of the file or more.

        Raises:
            GgufError: more are announced than are allowed, or than the file can hold.
        """
        at = self.pos
        n = self.u64()
        fitting = (self.source.size - self.pos) // min_bytes
        if n > most:
            self.fail(f"it announces {n:,} {what}; at most {most:,} are allowed.", at=at)
        if n > fitting:
            self.fail(
                f"it announces {n:,} {what}, and the rest of the file can hold at most"
                f" {fitting:,}.",
                at=at,
            )
        return n

    def string(self, what: str, *, most: int) -> str:
        """A string of at most `most` bytes; bytes that are not UTF-8 become U+FFFD."""
        n_bytes = self.count(f"bytes in {what}", most=most, min_bytes=1)
        return self.take(n_bytes).decode("utf-8", "replace")

    def scalar(self, value_type: ValueType) -> Scalar:
        """A number or a truth value; any byte but 0 is true, as in ggml."""
        dtype = DTYPES[value_type]
        raw = self.take(dtype.itemsize)
        if value_type is ValueType.BOOL:
            return raw != b"\0"
        value: Scalar = np.frombuffer(raw, dtype)[0].item()
        return value

    def numbers(self, value_type: ValueType, n: int) -> NumberArray:
        """An array of `n` numbers, read-only."""
        dtype = DTYPES[value_type]
        raw = self.take(n * dtype.itemsize)
        if value_type is ValueType.BOOL:
            raw = (np.frombuffer(raw, np.uint8) != 0).tobytes()
        values: NumberArray = np.frombuffer(raw, dtype)
        return values

    def strings(self, n: int) -> StringArray:
        """An array of `n` strings, of which only the positions are looked at."""
        starts = self._string_starts(n)
        first, self.pos = self.pos, starts.pop()
        positions = np.frombuffer(starts, dtype=np.int64) - first
        return StringArray(self._data[first : self.pos], positions)

    def _string_starts(self, n: int) -> array[int]:
        """Position of each of `n` strings, and where the last one ends.

        The one hot loop of opening a file: a string's place is known only from the one before it.
        """
        data, unpack_from = self._data, _U64.unpack_from
        pos, last = self.pos, self.source.size - limits.MIN_STRING_BYTES
        starts = array("q", bytes(8 * (n + 1)))
        for i in range(n):
            if pos > last:
                self._strings_end_early(i, n, at=starts[max(0, i - 1)])
            starts[i] = pos
            pos += unpack_from(data, pos)[0] + 8
        if pos > self.source.size:
            self._strings_end_early(n, n, at=starts[n - 1])
        starts[n] = pos
        return starts

    def _strings_end_early(self, i: int, n: int, *, at: int) -> NoReturn:
        self.fail(
            f"string {max(1, i):,} of {n:,} reaches beyond the end of the file.",
            at=at,
        )

    def fail(self, sentence: str, *, at: int) -> NoReturn:
        """Raise a GgufError about byte `at`."""
        raise self.source.fault(sentence, at=at, where=self.where)
