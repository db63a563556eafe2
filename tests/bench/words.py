"""Figures for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.stats import Ratio, spread

if TYPE_CHECKING:
    from collections.abc import Sequence


def with_quartiles(values: Sequence[float], *, digits: int) -> str:
    """`median (quartile to quartile)`."""
    found = spread(values)
    middle, low, high = (
        f"{x:.{digits}f}" for x in (found.median, found.low_quartile, found.high_quartile)
    )
    return f"{middle} ({low} to {high})"


def ratio_cells(found: Ratio) -> tuple[str, str]:
    """A ratio with its quartiles, and the interval of its median."""
    return (
        f"{found.median:.3f} ({found.low_quartile:.3f} to {found.high_quartile:.3f})",
        f"{found.low:.3f} to {found.high:.3f}, n = {found.n}",
    )
