"""Rows of a product shared among threads, each of which calls BLAS on its own.

BLAS with threads of its own waits for all of them several times a product, spinning: one that is
held up by another program holds up the rest. Here they meet once, at the end.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.block_parts import Floats


class Scratch:
    """Memory of one thread that grows when more is needed."""

    def __init__(self) -> None:
        self._memory: Floats = np.empty(0, np.float32)

    def rows(self, n_rows: int, n_elems: int) -> Floats:
        """Room for rows, [n_rows, n_elems]; it is that of the last call."""
        n = n_rows * n_elems
        if self._memory.size < n:
            self._memory = np.empty(n, np.float32)
        return self._memory[:n].reshape(n_rows, n_elems)


class Workers:
    """`n_threads` threads, the caller's included. Used from one thread."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._scratch = [Scratch() for _ in range(n_threads)]
        self._helpers = ThreadPoolExecutor(max(1, n_threads - 1), "blas")

    def share(self, n_rows: int, compute: Callable[[int, int, Scratch], None]) -> None:
        """Call `compute` with neighbouring rows on every thread; raises what one of them raised."""
        edges = [n_rows * i // self.n_threads for i in range(self.n_threads + 1)]
        shares = list(zip(itertools.pairwise(edges), self._scratch, strict=True))
        jobs = [
            self._helpers.submit(compute, start, stop, scratch)
            for (start, stop), scratch in shares[1:]
            if start < stop
        ]
        try:
            compute(*shares[0][0], shares[0][1])
        finally:
            # They write into the result, so nothing may go on before all have ended.
            wait(jobs)
        for job in jobs:
            job.result()

    def dispose(self) -> None:
        """End the threads."""
        self._helpers.shutdown()
