"""A string array whose items are decoded when asked for: vocabularies have 262 144 of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

_LENGTH = struct.Struct("<Q")

LENGTH_BYTES = _LENGTH.size
"""Bytes before those of a string."""


class StringArray(Sequence[str]):
    """Strings as they stand in a file: each is its length in 8 bytes, then its bytes.

    `blob` holds all of them in a row, `starts` the position of each in it. Bytes that are not
    UTF-8 decode to U+FFFD; `raw` gives the bytes themselves.
    """

    __slots__ = ("blob", "starts")

    def __init__(self, blob: bytes, starts: npt.NDArray[np.int64]) -> None:
        self.blob = blob
        self.starts = starts

    @classmethod
    def of(cls, items: Sequence[str | bytes]) -> StringArray:
        """`items` packed as a file holds them."""
        encoded = [item.encode() if isinstance(item, str) else item for item in items]
        sizes = np.array([0, *(_LENGTH.size + len(item) for item in encoded)], dtype=np.int64)
        blob = b"".join(_LENGTH.pack(len(item)) + item for item in encoded)
        return cls(blob, np.cumsum(sizes)[:-1])

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[str]: ...
    def __getitem__(self, i: int | slice) -> str | Sequence[str]:
        if isinstance(i, slice):
            return StringArray(self.blob, self.starts[i])
        return self.raw(i).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        blob, unpack_from = self.blob, _LENGTH.unpack_from
        for start in self.starts.tolist():
            (n_bytes,) = unpack_from(blob, start)
            yield blob[start + 8 : start + 8 + n_bytes].decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<StringArray of {len(self)} strings>"

    def raw(self, i: int) -> bytes:
        """The bytes of item `i`."""
        start = int(self.starts[i])
        (n_bytes,) = _LENGTH.unpack_from(self.blob, start)
        return self.blob[start + 8 : start + 8 + n_bytes]
