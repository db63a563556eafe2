"""Parts of a mapped file that were copied elsewhere, and need not count as memory any more.

A page that a process has read through a mapping stays its own until it is told otherwise: weights
that another memory keeps, such as CPU_REPACK, would be held twice. Only whole large pages are let
go, since what is left of a large page becomes small ones: what lies beside other tensors stays.
Reading the pages again is possible, and as a rule needs no disk.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np

from engine.gguf.huge_pages import LARGE_PAGE_BYTES


class CopiedParts:
    """Counts, for each large page of a mapping, the bytes that were not copied yet."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._can_ask = True
        n_bytes = len(mapping)
        self._left = np.full(-(-n_bytes // LARGE_PAGE_BYTES), LARGE_PAGE_BYTES)
        if n_bytes % LARGE_PAGE_BYTES:
            self._left[-1] = n_bytes % LARGE_PAGE_BYTES

    def add(self, start: int, stop: int) -> None:
        """Bytes `start` to `stop` were copied and are not read again soon; say so of each once."""
        i_pages = np.arange(start // LARGE_PAGE_BYTES, -(-stop // LARGE_PAGE_BYTES))
        first = i_pages * LARGE_PAGE_BYTES
        self._left[i_pages] -= np.minimum(stop, first + LARGE_PAGE_BYTES) - np.maximum(start, first)
        for i_page in i_pages[self._left[i_pages] == 0].tolist():
            self._let_go(i_page * LARGE_PAGE_BYTES)

    def _let_go(self, first: int) -> None:
        """Of a file that is mapped for reading nothing is lost."""
        if sys.platform != "linux" or not self._can_ask:
            return
        try:
            n_bytes = min(LARGE_PAGE_BYTES, len(self._mapping) - first)
            self._mapping.madvise(mmap.MADV_DONTNEED, first, n_bytes)
        except OSError:
            # A system that refuses one refuses all; the pages stay, as they do elsewhere.
            self._can_ask = False
