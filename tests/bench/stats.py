"""What pairs of measurements say: medians, spread, intervals, and whether a run may be trusted.

Pure. `seconds` are of one side each, in the order of the pairs; a ratio above 1 says that the first
side is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESAMPLES = 2000
LEVEL = 0.95
SEED = 20
MOST_VARIATION = 0.15
"""A run is invalid, not failed, when its own ceilings vary by more."""
CHUNK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the middle of some values is, and its half."""

    median: float
    low_quartile: float
    high_quartile: float
    n: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratios of pairs, and an interval that their median lies in with 95 %."""

    median: float
    low_quartile: float
    high_quartile: float
    low: float
    high: float
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles, between values where there is none."""
    low, middle, high = np.quantile(np.asarray(values, np.float64), (0.25, 0.5, 0.75))
    return Spread(float(middle), float(low), float(high), len(values))


def ratio(seconds: Sequence[float], other_seconds: Sequence[float]) -> Ratio:
    """How much faster the first side is, pair by pair: time of the other over its own."""
    ratios = np.asarray(other_seconds, np.float64) / np.asarray(seconds, np.float64)
    middle = spread([float(x) for x in ratios])
    low, high = median_interval([float(x) for x in ratios])
    return Ratio(middle.median, middle.low_quartile, middle.high_quartile, low, high, middle.n)


def median_interval(
    values: Sequence[float],
    *,
    level: float = LEVEL,
    n_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[float, float]:
    """The bootstrap interval (percentiles) of the median; the same values give the same one."""
    data = np.asarray(values, np.float64)
    rng = np.random.default_rng(seed)
    medians = np.empty(n_resamples)
    step = max(1, CHUNK_CELLS // len(data))
    for first in range(0, n_resamples, step):
        chosen = rng.integers(0, len(data), (min(step, n_resamples - first), len(data)))
        medians[first : first + step] = np.median(data[chosen], axis=1)
    rest = (1 - level) / 2
    low, high = np.quantile(medians, (rest, 1 - rest))
    return float(low), float(high)


def variation(values: Sequence[float]) -> float:
    """How much a figure moved: from the tenth to the ninetieth percentile, over the median."""
    low, middle, high = np.quantile(np.asarray(values, np.float64), (0.1, 0.5, 0.9))
    return float((high - low) / middle)


def turns(n_pairs: int) -> Iterator[tuple[int, int]]:
    """Which side is measured first and second in each pair: A B, B A, A B, ..."""
    for i_pair in range(n_pairs):
        yield (i_pair % 2, 1 - i_pair % 2)


def speeds(seconds: Sequence[float], n_each: float) -> list[float]:
    """How many a second, where each measurement took `n_each`."""
    return [n_each / x for x in seconds]
