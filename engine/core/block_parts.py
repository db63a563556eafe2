"""Parts that number formats are put together from: scales, and numbers of a few bits.

A block is a row of bytes; functions here take [n, bytes] and give [n, elements].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block, as a column."""
    return words(blocks, at, 1, np.dtype("<u2")).view("<f2").astype(np.float32)


def words(
    blocks: Bytes, at: int, count: int, kind: np.dtype[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """`count` numbers of a kind from byte `at` of each block on."""
    part = np.ascontiguousarray(blocks[:, at : at + count * kind.itemsize])
    return part.view(kind)


def low_bits(packed: Bytes) -> Bytes:
    """[n, 16] bytes -> [n, 32] numbers of 4 bits, low halves first."""
    return np.hstack([packed & 0x0F, packed >> 4])


def fields(packed: Bytes, n_bits: int, run: int) -> Bytes:
    """Numbers of `n_bits` (1, 2 or 4): each run of bytes holds all its lowest fields first.

    [n, m] bytes -> [n, m * 8 / n_bits].
    """
    shifts = np.arange(0, 8, n_bits, dtype=np.uint8)[:, np.newaxis]
    moved = packed.reshape(len(packed), -1, 1, run) >> shifts
    return (moved & np.uint8(2**n_bits - 1)).reshape(len(packed), -1)


def bits(packed: Bytes) -> Bytes:
    """[n, m] bytes -> [n, 8 m] numbers of 1 bit, the lowest of a byte first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def spread(columns: npt.NDArray[np.generic], n: int) -> Floats:
    """Each column n times, as float32."""
    return np.repeat(columns.astype(np.float32), n, axis=1)
