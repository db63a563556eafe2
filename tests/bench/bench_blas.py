"""Where BLAS beats the CPU backend's own kernels: `python -m tests.bench.bench_blas [THREADS]`.

Pairs of products, the two backends in turn, on the same bytes. A ratio above 1 says that BLAS is
faster; what the rules of `auto` take should be, and nothing else.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.backend.computer import physical_cores
from engine.backend.interface import SplitGraph
from engine.backends.blas.backend import BlasBackend
from engine.backends.blas.reg import create as create_blas
from engine.backends.blas.rules import BlasRules
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create as create_cpu
from engine.core.options import BlasUse
from engine.core.types import TensorType
from tests.bench.bench_cpu_matmul import product
from tests.bench.stats import ratio, spread

if TYPE_CHECKING:
    from engine.backend.interface import Backend, Completion

KINDS = (TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.Q8_0)
COLUMNS = (32, 64, 128, 256, 512)
SIDES = ((1024, 1024), (2048, 2048), (2048, 8192))
"""(inner dimension, rows)."""
N_PAIRS = 11


def seconds(backend: Backend, graph: SplitGraph) -> float:
    """One run of a split."""
    seen: list[Completion] = []
    backend.graph_compute(graph).on_complete(seen.append)
    return (seen[0].end_ns - seen[0].start_ns) / 1e9


def _words(by_blas: tuple[float, ...], by_cpu: tuple[float, ...]) -> str:
    found = ratio(by_blas, by_cpu)
    return (
        f"BLAS {spread(by_blas).median * 1e3:8.2f}  CPU {spread(by_cpu).median * 1e3:8.2f}  "
        f"ratio {found.median:5.2f} ({found.low:.2f} to {found.high:.2f})"
    )


def main(n_threads: int) -> None:
    """Print a line a product: medians in ms, and how much faster BLAS is."""
    blas = BlasBackend(create_blas().devices()[0], n_threads)
    cpu = CpuBackend(create_cpu().devices()[0], n_threads)
    print(f"{n_threads} threads, {N_PAIRS} pairs; ratio: the CPU's own time over BLAS's (95 %)")
    for kind in KINDS:
        for inner, n_rows in SIDES:
            for n_columns in COLUMNS:
                ours = product(kind, n_columns, n_rows=n_rows, inner=inner)
                # A split keeps what one backend compiled for it.
                theirs = SplitGraph(ours.nodes, ours.places)
                pairs = [(seconds(blas, theirs), seconds(cpu, ours)) for _ in range(N_PAIRS + 1)]
                by_blas, by_cpu = zip(*pairs[1:], strict=True)
                is_taken = BlasRules(BlasUse.AUTO).supports_op(ours.nodes[0])
                print(
                    f"{kind.label:5} {inner:5} x {n_rows:5}, N {n_columns:4}:  "
                    f"{_words(by_blas, by_cpu)}{'  auto' if is_taken else ''}",
                    flush=True,
                )
    blas.dispose()
    cpu.dispose()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else physical_cores())
