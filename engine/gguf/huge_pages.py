"""A mapped file in memory before it is needed, in pages of 2 MiB where the system has them.

A processor that streams weights looks up the address of each page: with 4 KiB pages it reads about
two thirds of what the memory could give. Linux keeps a file in large pages when a mapping that
asked for them makes it read the file; what it read before, in small ones, it has to drop first.
Nothing of this costs memory: the pages are those of the file.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENT_BYTES = 64 << 20
"""What is brought in at once; a multiple of a large page."""

LARGE_PAGE_BYTES = 2 << 20
"""A page of the larger kind, and what one call brings in."""

SMALLEST_BYTES = 32 << 20
"""A smaller file fits into caches, whatever its pages are."""

SLOWEST_BYTES_PER_S = 400 << 20
"""A disk that reads less than this is not made to read again what is in memory already."""

_POPULATE_READ = 22
"""Linux's MADV_POPULATE_READ, since 5.14."""

_MAPPINGS = Path("/proc/self/smaps")
_IN_LARGE = re.compile(r"^FilePmdMapped:\s*(\d+) kB", re.MULTILINE)


def bring_in(mapping: mmap.mmap, path: Path) -> Iterator[int]:
    """Bring the file in, a segment at a time; gives the bytes done after each.

    Gives nothing where the system cannot be asked. Where the file lies in small pages and the disk
    is fast, it is read once more from there, and counted from the start again.
    """
    if sys.platform != "linux":
        return
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
        stream = path.open("rb")
    except OSError:
        return
    with stream:
        yield from _populated(mapping)
        n_bytes = len(mapping)
        # Nearly all is enough.
        if n_bytes < SMALLEST_BYTES or 10 * _bytes_in_large_pages(mapping) >= 9 * n_bytes:
            return
        # One segment tells whether the rest is worth it. Then all goes at once: what is read ahead
        # beside small pages becomes small ones.
        if _renewed(mapping, stream.fileno()) and _drop(mapping, stream.fileno(), n_bytes):
            yield from _populated(mapping)


def _populated(mapping: mmap.mmap) -> Iterator[int]:
    """Bring every segment in; stops where one cannot be."""
    for first in range(0, len(mapping), SEGMENT_BYTES):
        n_bytes = min(SEGMENT_BYTES, len(mapping) - first)
        if not _populate(mapping, first, n_bytes):
            return
        yield first + n_bytes


def _renewed(mapping: mmap.mmap, file: int) -> bool:
    """Have the first segment read from the disk; whether that was quick and gave large pages."""
    n_bytes = min(SEGMENT_BYTES, len(mapping))
    if not _drop(mapping, file, n_bytes):
        return False
    before, start_ns = _bytes_in_large_pages(mapping), time.monotonic_ns()
    if not _populate(mapping, 0, n_bytes):
        return False
    is_slow = n_bytes * 1_000_000_000 < SLOWEST_BYTES_PER_S * (time.monotonic_ns() - start_ns)
    return not is_slow and _bytes_in_large_pages(mapping) > before


def _drop(mapping: mmap.mmap, file: int, n_bytes: int) -> bool:
    """Have the system forget the first bytes of the file; False where it cannot be asked."""
    try:
        # Pages that are not written yet would stay.
        os.fdatasync(file)
        mapping.madvise(mmap.MADV_DONTNEED, 0, n_bytes)
        os.posix_fadvise(file, 0, n_bytes, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    return True


def _populate(mapping: mmap.mmap, first: int, n_bytes: int) -> bool:
    """Bring a segment in; False where it cannot be, and whoever reads it will learn why.

    Step by step: Python's lock is held in each, and other threads want their turn.
    """
    try:
        for start in range(first, first + n_bytes, LARGE_PAGE_BYTES):
            mapping.madvise(_POPULATE_READ, start, min(LARGE_PAGE_BYTES, first + n_bytes - start))
    except OSError:
        return False
    return True


def _bytes_in_large_pages(mapping: mmap.mmap) -> int:
    """Bytes that are mapped in large pages; 0 where nobody says."""
    try:
        text = _MAPPINGS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    address = int(np.frombuffer(mapping, np.uint8, 1).ctypes.data)
    start = re.search(f"^{address:08x}-", text, re.MULTILINE)
    found = _IN_LARGE.search(text, start.end()) if start else None
    return int(found[1]) * 1024 if found else 0
