"""One MUL_MAT in our CPU backend, in the plain layout of weights."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create
from engine.core.types import TensorType
from tests.bench.bench_cpu_matmul import product

if TYPE_CHECKING:
    from engine.backend.interface import Completion


def median_seconds(kind: int, shape: list[int], *, n_threads: int, n_runs: int) -> float:
    """The median of so many runs; shape: inner dimension, rows, columns."""
    inner, n_rows, n_columns = shape
    graph = product(TensorType(kind), n_columns, n_rows=n_rows, inner=inner)
    backend = CpuBackend(create().devices()[0], n_threads)
    seen: list[Completion] = []
    for _ in range(n_runs + 1):
        backend.graph_compute(graph).on_complete(seen.append)
    backend.dispose()
    return statistics.median(done.end_ns - done.start_ns for done in seen[1:]) / 1e9
