"""The figures that are aimed at, and whether a run reached them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.results import Cell, Column, Part, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound for every figure whose whole name matches; `is_least` or it is the most."""

    words: str
    pattern: str
    bound: float
    is_least: bool = True


BARS = (
    Bar("decode over llama.cpp's", r"decode 64 ratio .*", 1.0),
    Bar("decode over llama.cpp's, Gemma", r"decode 64 ratio gemma .*", 1.25),
    Bar("decode, share of the read ceiling, Qwen 1.5B, 2 threads",
        r"decode 64 share qwen-1\.5b 2", 0.80),
    Bar("prefill 512 over llama.cpp's", r"prefill 512 ratio .*", 1.0),
    Bar("recording on over off, upper end", r"overhead upper end .*", 0.98),
    Bar("host time outside kernels, SmolLM2, %", r"host percent demo .*", 5.0, is_least=False),
    Bar("OpenCL decode over our CPU, SmolLM2", r"opencl ratio demo", 0.6),
    Bar("OpenCL decode over our CPU, Gemma and Qwen", r"opencl ratio (gemma|qwen.*)", 0.4),
    Bar("warm start to first token, SmolLM2, s", r"warm start s .*", 2.5, is_least=False),
    Bar("cold start to first token, SmolLM2, s", r"cold start s .*", 45.0, is_least=False),
    Bar("memory above the plan, MB", r"above mb .*", 250.0, is_least=False),
)  # fmt: skip
COLUMNS = (Column("figure"), Column("bar"), Column("farthest from it", 3), Column("where"),
           Column("verdict"))  # fmt: skip


def bars_table(
    figures: Mapping[str, float], bars: Sequence[Bar] = BARS, *, is_valid: bool = True
) -> Part:
    """Each bar with the figure that is farthest on the wrong side of it."""
    rows = tuple(bar_row(bar, figures) for bar in bars)
    notes = [
        "Of what was measured in this run. OpenCL's bars are for Debian's PoCL; pip's has none."
    ]
    if not is_valid:
        notes.append("The machine was too restless: the run is invalid, whatever the verdicts.")
    return Part(Table("Bars", COLUMNS, rows, tuple(notes)))


def bar_row(bar: Bar, figures: Mapping[str, float]) -> tuple[Cell, ...]:
    """One bar; a figure that was not measured is said to be so."""
    bound = f"{'>=' if bar.is_least else '<='} {bar.bound:g}"
    found = {name: x for name, x in figures.items() if re.fullmatch(bar.pattern, name)}
    if not found:
        return (bar.words, bound, None, None, "not measured")
    worst = (min if bar.is_least else max)(found, key=found.__getitem__)
    value = found[worst]
    is_met = value >= bar.bound if bar.is_least else value <= bar.bound
    return (bar.words, bound, value, worst, "met" if is_met else "not met")
