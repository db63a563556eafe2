"""Matrix products of the CPU backend: python tests/bench/bench_cpu_matmul.py [THREADS]

One column is bound by memory, so it is given in GB/s of weights; batches in GFLOP/s (two operations
a multiplication). Best of many runs: the rest is what else the machine did.
"""

from __future__ import annotations

import sys

import numpy as np

from engine.backend.interface import Completion, Place, SplitGraph
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create
from engine.core import build
from engine.core.tensor import Tensor
from engine.core.types import TensorType

ROWS, INNER = 4096, 2048
COLUMNS = (1, 8, 32, 128)
KINDS = (
    TensorType.Q4_0,
    TensorType.Q4_1,
    TensorType.Q5_0,
    TensorType.Q5_1,
    TensorType.Q8_0,
    TensorType.Q4_K,
    TensorType.Q5_K,
    TensorType.Q6_K,
    TensorType.F16,
    TensorType.BF16,
    TensorType.F32,
    TensorType.Q3_K,
    TensorType.IQ4_XS,
)
RUNS = 15


def main() -> None:
    """Print one line a type."""
    backend = CpuBackend(create().devices()[0], int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    backend.prepare()
    print(f"{ROWS} x {INNER}, {backend.n_threads} threads")
    for kind in KINDS:
        times = [best_ns(backend, kind, n_columns) for n_columns in COLUMNS]
        weight_bytes = kind.row_bytes(INNER) * ROWS
        speeds = [f"{weight_bytes / times[0]:6.1f} GB/s"]
        for n_columns, time_ns in zip(COLUMNS[1:], times[1:], strict=True):
            speeds.append(f"{2 * ROWS * INNER * n_columns / time_ns:7.1f} GFLOP/s ({n_columns})")
        print(f"{kind.label:5s}", "  ".join(speeds))
    backend.dispose()


def best_ns(backend: CpuBackend, kind: TensorType, n_columns: int) -> int:
    """The fastest of RUNS products with `n_columns` columns."""
    graph = product(kind, n_columns)
    seen: list[Completion] = []
    for _ in range(RUNS):
        backend.graph_compute(graph).on_complete(seen.append)
    return min(done.end_ns - done.start_ns for done in seen)


def product(
    kind: TensorType, n_columns: int, *, n_rows: int = ROWS, inner: int = INNER
) -> SplitGraph:
    """One MUL_MAT with zero weights: speed does not depend on values."""
    weight = Tensor(kind, (inner, n_rows, 1, 1))
    x = Tensor(TensorType.F32, (inner, n_columns, 1, 1))
    node = build.mul_mat(weight, x)
    offset, places = 0, {}
    for tensor in (weight, x, node):
        places[tensor] = offset
        offset += -(-tensor.n_bytes // 64) * 64
    buffer = create().devices()[0].buffer_type().alloc_buffer(offset)
    # Untouched pages would all be the same zero page.
    buffer.clear(0)
    values = np.random.default_rng(0).standard_normal((n_columns, inner), dtype=np.float32)
    buffer.set_tensor(places[x], values.view(np.uint8).reshape(-1))
    return SplitGraph((node,), {tensor: Place(buffer, at) for tensor, at in places.items()})


if __name__ == "__main__":
    main()
