"""Two engines take turns at the same work, with a pass of the ceilings before each pair."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.stats import MOST_VARIATION, turns, variation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.bench.ceilings import Ceilings
    from tests.bench.wire import Child

    Say = Callable[[str], None]

SEED = 1
TOKEN_IDS = range(1000, 20000)
"""Every model here knows these."""
WARM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A request with so many tokens: all at once, or one after the other."""

    request: str
    n_tokens: int

    @property
    def name(self) -> str:
        """Such as `decode 64`."""
        return f"{self.request} {self.n_tokens}"

    def tokens(self) -> list[int]:
        """The tokens, the same for both sides and in every run."""
        rng = random.Random(SEED)
        return [rng.choice(TOKEN_IDS) for _ in range(self.n_tokens)]


@dataclass(frozen=True, slots=True)
class Lap:
    """One side's measurement of a work; `each` are single tokens where they were timed."""

    seconds: float
    each: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Race:
    """Laps by work and side, in the order of pairs, and the ceilings before each pair."""

    laps: Mapping[Work, tuple[tuple[Lap, ...], ...]]
    ceilings: tuple[Mapping[str, float], ...]

    def seconds(self, work: Work, side: int) -> list[float]:
        """Seconds of each lap of a side."""
        return [lap.seconds for lap in self.laps[work][side]]

    def later_seconds(self, work: Work, side: int) -> list[float]:
        """The same without the first token of each lap, which wakes threads and caches."""
        return [sum(lap.each[1:]) for lap in self.laps[work][side]]

    def ceiling(self, name: str) -> list[float]:
        """One ceiling before each pair."""
        return [found[name] for found in self.ceilings]


def run_race(
    sides: Sequence[Child],
    works: Sequence[Work],
    ceilings: Ceilings,
    *,
    n_pairs: int,
    say: Say,
    within_s: float = math.inf,
) -> Race:
    """Measure every work of every pair; one side alone is measured as often.

    After `within_s` no other pair begins (optional, default: never), so there may be fewer.
    """
    warm_up(sides, works)
    laps: dict[Work, list[list[Lap]]] = {work: [[] for _ in sides] for work in works}
    passes: list[Mapping[str, float]] = []
    start = time.monotonic()
    for i_pair, order in enumerate(turns(n_pairs)):
        if passes and time.monotonic() - start > within_s:
            break
        say(f"pair {i_pair + 1} of {n_pairs}")
        passes.append(ceilings.measure())
        for work in works:
            for i_side in order if len(sides) > 1 else (0,):
                answer = sides[i_side].ask(work.request, tokens=work.tokens())
                lap = Lap(answer["seconds"], tuple(answer.get("each", ())))
                laps[work][i_side].append(lap)
    return Race(
        {work: tuple(tuple(side) for side in both) for work, both in laps.items()}, tuple(passes)
    )


def warm_up(sides: Sequence[Child], works: Sequence[Work]) -> None:
    """Let each side compute each kind of work once: it compiles, and reads the file."""
    for side in sides:
        for work in works:
            n_tokens = work.n_tokens if work.request == "prefill" else WARM_TOKENS
            side.ask(work.request, tokens=work.tokens()[:n_tokens])


def variations(passes: Sequence[Mapping[str, float]], n_threads: int) -> dict[str, float]:
    """How much each ceiling with so many threads moved from pass to pass."""
    names = [name for name in passes[0] if name.endswith(f" {n_threads}")]
    return {name: variation([found[name] for found in passes]) for name in names}


def invalid_because(moved: Mapping[str, float]) -> list[str]:
    """Which ceilings moved too much for a run to count, and by how much."""
    return [
        f"{name} varies by {value:.0%}" for name, value in moved.items() if value > MOST_VARIATION
    ]
