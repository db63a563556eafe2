"""Single matrix products, type by type: ours beside ggml's, in turns, in the plain layout."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench.bench_cpu_matmul import KINDS
from tests.bench.race import invalid_because, variations
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.stats import ratio, spread, turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.types import TensorType
    from tests.bench.tools import Tools
    from tests.bench.wire import Child

INNER, ROWS = 4096, 4096
COLUMNS_OF_X = (1, 128)
N_RUNS = 5
COLUMNS = (
    Column("type"), Column("threads"), Column("columns"), Column("ours", 1), Column("ggml", 1),
    Column("unit"), Column("ratio", 3), Column("share of ceiling", 3),
)  # fmt: skip
NOTES = (
    f"MUL_MAT of {ROWS} rows of {INNER}. One column is bound by memory: GB/s of weights over the "
    "read ceiling. Batches: 10^9 operations/s over the int8 ceiling, for f32, f16 and bf16 over "
    "the f32 one.",
    f"Each measurement is the median of {N_RUNS} runs back to back, so caches help both sides. "
    "ggml's special layouts (CPU_REPACK, AMX) are not used here; whole models use them.",
)


def ops(tools: Tools) -> Part:
    """Every type, number of columns and number of threads."""
    rows: list[tuple[Cell, ...]] = []
    part = Part(Table("Matrix products", COLUMNS, (), NOTES))
    with ExitStack() as stack:
        sides = [stack.enter_context(tools.ours())]
        if tools.peer.build is not None:
            sides.append(stack.enter_context(tools.peer.child(tools.log)))
        for n_threads in tools.wish.threads:
            passes = []
            for kind in KINDS:
                tools.say(f"product {kind.label}, {n_threads} threads")
                passes.append(tools.ceilings.measure())
                for n_columns in COLUMNS_OF_X:
                    both = in_turns(tools, sides, kind, n_columns, n_threads)
                    row = product_cells(kind, n_columns, both, passes[-1], n_threads)
                    rows.append((kind.label, n_threads, n_columns, *row))
                    part.data[f"{kind.label} {n_columns} {n_threads}"] = both
            moved = variations(passes, n_threads)
            part.variations.update({f"ops {n_threads}: {name}": x for name, x in moved.items()})
    invalid = tuple(
        f"Invalid, not failed: {reason}." for reason in invalid_because(part.variations)
    )
    table = Table("Matrix products", COLUMNS, tuple(rows), NOTES + invalid)
    return Part(table, part.figures, part.data, part.variations)


def in_turns(
    tools: Tools, sides: Sequence[Child], kind: TensorType, n_columns: int, n_threads: int
) -> list[list[float]]:
    """Seconds of each side, pair by pair."""
    seconds: list[list[float]] = [[] for _ in sides]
    for order in turns(tools.wish.n_pairs):
        for i_side in order if len(sides) > 1 else (0,):
            answer = sides[i_side].ask(
                "product", kind=int(kind), shape=[INNER, ROWS, n_columns], n_threads=n_threads,
                n_runs=N_RUNS,
            )  # fmt: skip
            seconds[i_side].append(answer["seconds"])
    return seconds


def product_cells(
    kind: TensorType,
    n_columns: int,
    seconds: Sequence[Sequence[float]],
    ceilings: Mapping[str, float],
    n_threads: int,
) -> tuple[Cell, ...]:
    """Speeds of both, their ratio, and ours over the ceiling."""
    if n_columns == 1:
        amount, unit, ceiling = kind.row_bytes(INNER) * ROWS / 1e9, "GB/s", "read"
    else:
        amount, unit = 2 * ROWS * INNER * n_columns / 1e9, "GOP/s"
        ceiling = "int8" if kind.is_quantized else "f32"
    told = [amount / spread(side).median for side in seconds]
    share = told[0] / ceilings[f"{ceiling} {n_threads}"]
    if len(told) == 1:
        return (told[0], None, unit, None, share)
    return (*told, unit, ratio(seconds[0], seconds[1]).median, share)
