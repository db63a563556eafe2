"""Single operations, ours beside ggml's: matrix products type by type, and all of a model's graphs.

Both sides compute the same graph in one process, in turns, in the plain layout of weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.core.types import TYPE_BY_LABEL
from engine.model.manifest import DEMO
from tests.bench.bench_cpu_matmul import KINDS
from tests.bench.models import model_path
from tests.bench.op_pairs import INNER, N_RUNS, ROWS
from tests.bench.peer_builds import PEERS
from tests.bench.peer_download import VARIANTS, fetched
from tests.bench.race import invalid_because, variations
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.stats import ratio, spread
from tests.bench.wire import ChildError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.tools import Tools
    from tests.bench.wire import Child

COLUMNS = (
    Column("op"), Column("type"), Column("case"), Column("threads"), Column("in a prompt"),
    Column("in a token"), Column("ours, us", 1), Column("ggml, us", 1), Column("ratio", 3),
    Column("ours", 1), Column("unit"), Column("share of ceiling", 3),
)  # fmt: skip
NOTES = (
    f"First MUL_MAT of {ROWS} rows of {INNER}, then the operations of the demo model's graphs, and "
    "how often they are in each. Both sides compute the same graph on the same bytes.",
    "One column is bound by memory: GB/s over the read ceiling. Batches: 10^9 operations/s over "
    "the int8 ceiling, for f32, f16 and bf16 over the f32 one.",
    f"Each measurement is the median of {N_RUNS} runs back to back, so caches help both sides. "
    "ggml's special layouts (CPU_REPACK, AMX) are not used here; whole models use them.",
)


def ops(tools: Tools) -> Part:
    """Every product and every operation of the demo model, with every number of threads."""
    rows: list[tuple[Cell, ...]] = []
    part = Part(Table("Operations", COLUMNS, (), NOTES))
    folder = library_folder(tools)
    path = model_path(DEMO, tools.say)
    library = ""
    with tools.ours() as child:
        for n_threads in tools.wish.threads:
            passes = []
            for group in (*(kind.label for kind in KINDS), DEMO):
                tools.say(f"operations: {group}, {n_threads} threads")
                passes.append(tools.ceilings.measure())
                answer = asked(child, group, folder, path, n_threads, tools.wish.n_pairs)
                library = answer["library"]
                for row in answer["rows"]:
                    rows.append(cells(row, passes[-1], n_threads))
                    part.data[f"{row['op']} {row['case']} {n_threads}"] = row["seconds"]
            moved = variations(passes, n_threads)
            part.variations.update({f"ops {n_threads}: {name}": x for name, x in moved.items()})
    peer = f"ggml is {library}." if library else "There is no library of ggml to compare with."
    invalid = tuple(
        f"Invalid, not failed: {reason}." for reason in invalid_because(part.variations)
    )
    table = Table("Operations", COLUMNS, tuple(rows), (*NOTES, peer, *invalid))
    return Part(table, part.figures, part.data, part.variations)


def library_folder(tools: Tools) -> Path | None:
    """Where ggml's libraries are, a variant for each kind of processor; None without any."""
    try:
        return fetched(VARIANTS, PEERS, tools.say)
    except ChildError as error:
        tools.say(f"ggml's libraries cannot be had: {error}")
        return None


def asked(
    child: Child, group: str, folder: Path | None, path: Path, n_threads: int, n_pairs: int
) -> dict[str, Any]:
    """The pairs of one type's products, or of the model's operations."""
    return child.ask(
        "op_pairs", group=group, folder=None if folder is None else str(folder), path=str(path),
        n_threads=n_threads, n_pairs=n_pairs,
    )  # fmt: skip


def cells(
    row: Mapping[str, Any], ceilings: Mapping[str, float], n_threads: int
) -> tuple[Cell, ...]:
    """Times of both sides, their ratio, and the speed of ours over a ceiling where there is one."""
    ours, *theirs = row["seconds"]
    middle = spread(ours).median
    other = spread(theirs[0]).median * 1e6 if theirs else None
    compared = ratio(ours, theirs[0]).median if theirs else None
    counts = (row["n_prompt"] or None, row["n_token"] or None)
    told = (row["op"], row["type"], row["case"], n_threads, *counts, middle * 1e6, other, compared)
    return (*told, *speed_cells(row, middle, ceilings, n_threads))


def speed_cells(
    row: Mapping[str, Any], seconds: float, ceilings: Mapping[str, float], n_threads: int
) -> tuple[Cell, ...]:
    """Our speed, its unit, and its share of a ceiling; the last for the large products only."""
    if row["is_batch"]:
        told: float = row["n_flops"] / seconds / 1e9
        kind = TYPE_BY_LABEL.get(row["type"])
        is_whole = kind is not None and kind.is_quantized
        ceiling, unit = "int8" if is_whole else "f32", "GOP/s"
    else:
        told, ceiling, unit = row["n_bytes"] / seconds / 1e9, "read", "GB/s"
    is_large = not row["n_prompt"] and not row["n_token"]
    share = told / ceilings[f"{ceiling} {n_threads}"] if is_large else None
    return (told, unit, share)
