"""What a profiler costs: recording on and off inside one generation, and the host's own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.models import model_path
from tests.bench.race import Work
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.stats import Ratio, ratio, spread
from tests.bench.words import ratio_cells, with_quartiles

if TYPE_CHECKING:
    from tests.bench.tools import Tools
    from tests.bench.wire import Child

HOST_TOKENS = 64
COLUMNS = (
    Column("model"), Column("threads"), Column("recording on over off"), Column("95 % interval"),
    Column("host time outside kernels, % of a token"), Column("a read, ms"),
)  # fmt: skip
NOTES = (
    "Recording is switched from token to token of one generation, on first; ratio of speeds, pair "
    "by pair. With it off ticks are read all the same.",
    "A read: what was recorded is read every 100 ms, as the window does, between two tokens.",
    f"Host time: what a token takes beyond its nodes, of {HOST_TOKENS - 1} tokens after the first.",
)


def overhead(ours: Child, n_pairs: int) -> tuple[Ratio, list[float]]:
    """Speed with recording on over speed with it off, and seconds of each time it was read.

    The model is loaded.
    """
    answer = ours.ask("tracing", tokens=Work("decode", 2 * n_pairs + 1).tokens())
    return ratio(answer["on"], answer["off"]), answer["reads"]


def tracing(tools: Tools) -> Part:
    """Every model with every number of threads."""
    rows: list[tuple[Cell, ...]] = []
    figures = {}
    for model in tools.wish.models:
        path = model_path(model, tools.say)
        for n_threads in tools.wish.threads:
            where, n_pairs = f"{model} {n_threads}", tools.wish.n_traced_pairs
            tools.say(f"{where} threads: recording on and off, {n_pairs} pairs of tokens")
            with tools.loaded(path, n_threads) as ours:
                found, reads = overhead(ours, n_pairs)
                answer = ours.ask("host_share", tokens=Work("decode", HOST_TOKENS).tokens())
            percents = [100 * share for share in answer["shares"]]
            figures[f"overhead {where}"] = found.median
            figures[f"overhead upper end {where}"] = found.high
            figures[f"host percent {where}"] = spread(percents).median
            host = with_quartiles(percents, digits=1)
            read_ms = with_quartiles([1000 * read for read in reads], digits=2) if reads else "-"
            rows.append((model, n_threads, *ratio_cells(found), host, read_ms))
    return Part(Table("Cost of recording", COLUMNS, tuple(rows), NOTES), figures)
