"""Prefill and decode of whole models: ours over llama.cpp's, and over what memory allows."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tests.bench.models import model_path, token_bytes
from tests.bench.race import Race, Work, invalid_because, run_race, variations
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.stats import MOST_VARIATION, ratio, speeds, spread
from tests.bench.words import ratio_cells, with_quartiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.tools import Tools

WORKS = {
    "prefill": (Work("prefill", 128), Work("prefill", 512)),
    "decode": (Work("decode", 64),),
}
COLUMNS = (
    Column("model"), Column("threads"), Column("work"), Column("ours, tokens/s"),
    Column("llama.cpp, tokens/s"), Column("ratio"), Column("95 % interval"),
    Column("without first token", 3), Column("share of read ceiling", 3),
    Column("llama.cpp's share", 3), Column("run"),
)  # fmt: skip
NOTES = (
    "Ratio: ours over llama.cpp's tokens/s, pair by pair. Medians, quartiles in brackets.",
    "Decode includes the first token of each generation; its graph was planned in a lap that is "
    "not counted. The ratio without it stands beside.",
    "Share of the read ceiling: bytes of weights that a token reads x tokens/s, over what as many "
    "threads read from memory just before.",
    f"A run is invalid, not failed, when a ceiling of as many threads varies by more than "
    f"{MOST_VARIATION:.0%} between its pairs: (p90 - p10) / median.",
)


def speed(tools: Tools) -> Part:
    """Every model with every number of threads."""
    rows: list[tuple[Cell, ...]] = []
    part = Part(Table("Prefill and decode", COLUMNS, (), NOTES))
    works = [work for name, both in WORKS.items() if name in tools.wish.parts for work in both]
    for model in tools.wish.models:
        path = model_path(model, tools.say)
        n_bytes = token_bytes(path)
        for n_threads in tools.wish.threads:
            where = f"{model} {n_threads}"
            race = raced(tools, path, works, where=where, n_threads=n_threads)
            moved = variations(race.ceilings, n_threads)
            part.variations.update({f"{where}: {name}": value for name, value in moved.items()})
            part.data[where] = measurements(race)
            verdict = "; ".join(invalid_because(moved)) or "valid"
            for work in works:
                figures = work_figures(race, work, n_threads=n_threads, n_bytes=n_bytes)
                part.figures.update({f"{name} {where}": x for name, x in figures.items()})
                cells = work_cells(race, work, figures)
                rows.append((model, n_threads, work.name, *cells, verdict))
    table = Table("Prefill and decode", COLUMNS, tuple(rows), NOTES)
    return Part(table, part.figures, part.data, part.variations)


def raced(tools: Tools, path: Path, works: Sequence[Work], *, where: str, n_threads: int) -> Race:
    """Ours, and llama.cpp where there is one, on one model."""
    with ExitStack() as stack:
        tools.say(f"{where} threads: loading")
        sides = [stack.enter_context(tools.loaded(path, n_threads))]
        if tools.peer.build is not None:
            sides.append(stack.enter_context(tools.loaded_peer(path, n_threads)))
        return run_race(
            sides, works, tools.ceilings, n_pairs=tools.wish.n_pairs,
            say=lambda text: tools.say(f"{where} threads: {text}"),
        )  # fmt: skip


def work_figures(race: Race, work: Work, *, n_threads: int, n_bytes: int) -> dict[str, float]:
    """What bars are held against: ratios and shares, by a name that begins with the work's."""
    sides = range(len(race.laps[work]))
    figures = {}
    if len(sides) > 1:
        figures[f"{work.name} ratio"] = ratio(race.seconds(work, 0), race.seconds(work, 1)).median
    if work.request != "decode":
        return figures
    if len(sides) > 1:
        later = ratio(race.later_seconds(work, 0), race.later_seconds(work, 1))
        figures[f"{work.name} later ratio"] = later.median
    ceiling = race.ceiling(f"read {n_threads}")
    for side, name in zip(sides, ("share", "peer share"), strict=False):
        shares = [
            speed * n_bytes / 1e9 / most
            for speed, most in zip(
                speeds(race.seconds(work, side), work.n_tokens), ceiling, strict=True
            )
        ]
        figures[f"{work.name} {name}"] = spread(shares).median
    return figures


def work_cells(race: Race, work: Work, figures: dict[str, float]) -> tuple[Cell, ...]:
    """The row of a work, between its name and the verdict."""
    told = [
        with_quartiles(speeds(race.seconds(work, i), work.n_tokens), digits=1)
        for i in range(len(race.laps[work]))
    ]
    later, share, peer_share = (
        figures.get(f"{work.name} {name}") for name in ("later ratio", "share", "peer share")
    )
    if len(told) == 1:
        return (told[0], None, None, None, None, share, None)
    found = ratio(race.seconds(work, 0), race.seconds(work, 1))
    return (*told, *ratio_cells(found), later, share, peer_share)


def measurements(race: Race) -> dict[str, Any]:
    """Every measurement of a race, for programs."""
    works = {
        work.name: [
            {"seconds": race.seconds(work, i), "each": [lap.each for lap in side]}
            for i, side in enumerate(both)
        ]
        for work, both in race.laps.items()
    }
    return {"works": works, "ceilings": [dict(found) for found in race.ceilings]}
