"""Decode on the first OpenCL devices over decode on our own CPU backend, same run, in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.models import model_path
from tests.bench.race import Work, invalid_because, run_race, variations
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.speed import measurements
from tests.bench.stats import ratio, speeds
from tests.bench.words import ratio_cells, with_quartiles

if TYPE_CHECKING:
    from tests.bench.race import Race
    from tests.bench.tools import Tools

WORK = Work("decode", 64)
COLUMNS = (
    Column("model"), Column("threads"), Column("OpenCL, tokens/s"), Column("CPU, tokens/s"),
    Column("ratio"), Column("95 % interval"), Column("run"),
)  # fmt: skip


def opencl(tools: Tools) -> Part:
    """Every model, all layers on OpenCL, on the most threads that are measured."""
    with tools.ours() as ours:
        found = ours.ask("devices")
    if not found["names"]:
        return Part(Table("OpenCL", COLUMNS, (), ("There is no OpenCL device here.",)))
    rows: list[tuple[Cell, ...]] = []
    part = Part(Table("OpenCL", COLUMNS, ()))
    n_threads = tools.wish.threads[-1]
    for model in tools.wish.models:
        tools.say(f"{model}: loading on {found['names'][0]} and on the CPU")
        race = raced(tools, model, n_threads)
        compared = ratio(race.seconds(WORK, 0), race.seconds(WORK, 1))
        moved = variations(race.ceilings, n_threads)
        part.figures[f"opencl ratio {model}"] = compared.median
        part.data[model] = measurements(race)
        part.variations.update({f"OpenCL {model}: {name}": x for name, x in moved.items()})
        told = [
            with_quartiles(speeds(race.seconds(WORK, side), WORK.n_tokens), digits=1)
            for side in (0, 1)
        ]
        verdict = "; ".join(invalid_because(moved)) or "valid"
        rows.append((model, n_threads, *told, *ratio_cells(compared), verdict))
    table = Table("OpenCL", COLUMNS, tuple(rows), (f"On {'; '.join(found['descriptions'])}.",))
    return Part(table, part.figures, part.data, part.variations)


def raced(tools: Tools, model: str, n_threads: int) -> Race:
    """All layers on OpenCL, and all on the CPU."""
    path = model_path(model, tools.say)
    with tools.loaded(path, n_threads, on_gpu=True) as gpu, tools.loaded(path, n_threads) as cpu:
        return run_race(
            [gpu, cpu], (WORK,), tools.ceilings, n_pairs=tools.wish.n_pairs,
            say=lambda text: tools.say(f"{model} on OpenCL: {text}"),
        )  # fmt: skip
