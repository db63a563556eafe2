"""Products with and without CPU_REPACK: python tests/bench/bench_repack.py [THREADS] [PAIRS]

Both layouts take turns, so that whatever else the machine does falls on both. A line gives the
median time of each, and the ratio interleaved / plain of pairs: median, and the tenth and ninetieth
percentile. Below 1 the interleaved layout is faster.
"""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Buffer, Completion, Place, SplitGraph
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create
from engine.backends.cpu.repack import RepackBufferType
from engine.core import build
from engine.core.tensor import Tensor
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backend.interface import BufferType

KINDS = (TensorType.Q4_0, TensorType.Q4_K, TensorType.IQ4_NL)
"""The last keeps its order: its ratio says how far 1 is to be trusted."""
SHAPES = ((4096, 11008), (2048, 2048))
"""Inner dimension and rows: one weight that no cache holds, and one that fits."""
COLUMNS = (1, 2, 8, 64)


def main() -> None:
    """Print one line a type, shape and number of columns."""
    n_threads, n_pairs = (*(int(word) for word in sys.argv[1:]), 2, 31)[:2]
    backend = CpuBackend(create().devices()[0], n_threads)
    backend.prepare()
    print(f"{n_threads} threads, {n_pairs} pairs")
    for kind in KINDS:
        for inner, n_rows in SHAPES:
            for n_columns in COLUMNS:
                pairs = measured(backend, kind, inner, n_rows, n_columns, n_pairs)
                print(f"{kind.label:7s} {n_rows} x {inner}, {n_columns:2d} columns", summary(pairs))
    backend.dispose()


def summary(pairs: list[tuple[int, int]]) -> str:
    """Medians in microseconds, and how the ratio is spread."""
    plain, interleaved = (statistics.median(times) / 1e3 for times in zip(*pairs, strict=True))
    low, middle, high = np.percentile([b / a for a, b in pairs], (10, 50, 90))
    times = f"plain {plain:9.1f} us, interleaved {interleaved:9.1f} us"
    return f"{times}, ratio {middle:.3f} ({low:.3f} to {high:.3f})"


def measured(
    backend: CpuBackend, kind: TensorType, inner: int, n_rows: int, n_columns: int, n_pairs: int
) -> list[tuple[int, int]]:
    """Times in ns of (plain, interleaved), run in turns; whichever is first alternates too."""
    weight = Tensor(kind, (inner, n_rows, 1, 1))
    x = Tensor(TensorType.F32, (inner, n_columns, 1, 1))
    node = build.mul_mat(weight, x)
    graphs = [
        product(weight, x, node, buft)
        for buft in (create().devices()[0].buffer_type(), RepackBufferType())
    ]
    pairs = []
    for i_pair in range(n_pairs + 1):
        times = [0, 0]
        for i in (i_pair % 2, 1 - i_pair % 2):
            times[i] = time_ns(backend, graphs[i])
        pairs.append((times[0], times[1]))
    return pairs[1:]


def product(weight: Tensor, x: Tensor, node: Tensor, buft: BufferType) -> SplitGraph:
    """One MUL_MAT of random bits; the scales, whose bits are in them too, are small numbers."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0x10, 0x28, weight.n_bytes, dtype=np.uint8)
    stored = buft.alloc_buffer(weight.n_bytes)
    stored.init_tensor(0, weight)
    stored.set_tensor(0, bits)
    end = -(-x.n_bytes // 64) * 64
    rest: Buffer = create().devices()[0].buffer_type().alloc_buffer(end + node.n_bytes)
    values = rng.standard_normal((x.ne[1], x.ne[0]), dtype=np.float32)
    rest.set_tensor(0, values.view(np.uint8).reshape(-1))
    places = {weight: Place(stored, 0), x: Place(rest, 0), node: Place(rest, end)}
    return SplitGraph((node,), places)


def time_ns(backend: CpuBackend, graph: SplitGraph) -> int:
    """How long one product takes."""
    seen: list[Completion] = []
    backend.graph_compute(graph).on_complete(seen.append)
    return seen[0].end_ns - seen[0].start_ns


if __name__ == "__main__":
    main()
