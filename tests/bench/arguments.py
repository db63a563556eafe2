"""What `make bench` may be told."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.models import MODELS
from tests.bench.wire import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = (
    "prefill", "decode", "tracing", "memory", "startup", "cold", "planning", "ops", "opencl",
)  # fmt: skip
N_PAIRS, LEAST_PAIRS = 9, 2
N_TRACED_PAIRS = 200
THREADS, MOST_THREADS = (1, 2), 256
OUT = ROOT / "build" / "bench"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to measure, how often, and where the report goes."""

    models: tuple[str, ...]
    threads: tuple[int, ...]
    n_pairs: int
    n_traced_pairs: int
    parts: tuple[str, ...]
    out: Path


def parse(words: Sequence[str]) -> Wish:
    """The wish; argparse's exit with status 2 for what cannot be."""
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...", description="Measure this machine; everything by default."
    )
    parser.add_argument(
        "--models", type=Names(MODELS), default=MODELS, help=f"of {','.join(MODELS)}"
    )
    parser.add_argument("--threads", type=_counts, default=THREADS, help="such as 1,2")
    parser.add_argument(
        "--pairs", type=_pairs, default=N_PAIRS, help=f"interleaved pairs (default: {N_PAIRS})"
    )
    parser.add_argument(
        "--traced-pairs", type=_pairs, default=N_TRACED_PAIRS,
        help=f"pairs of tokens with recording on and off (default: {N_TRACED_PAIRS})",
    )  # fmt: skip
    parser.add_argument("--only", type=Names(PARTS), default=PARTS, help=f"of {','.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    given = parser.parse_args(words)
    return Wish(
        given.models, given.threads, given.pairs, given.traced_pairs, given.only,
        given.out.expanduser().resolve(),
    )  # fmt: skip


class Names:
    """Reads names with commas between them; gives them in the known order."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def __call__(self, text: str) -> tuple[str, ...]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in self._known:
                known = ", ".join(self._known)
                raise argparse.ArgumentTypeError(f"there is no {name}; there are {known}")
        return tuple(name for name in self._known if name in names)


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        counts = (0,)
    if counts[0] < 1:
        raise argparse.ArgumentTypeError(f"{text} is no list of thread counts, such as 1,2")
    if counts[-1] > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{counts[-1]} threads are more than {MOST_THREADS}")
    return counts


def _pairs(text: str) -> int:
    n = int(text) if text.isdecimal() else 0
    if n < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"needs a number of pairs, {LEAST_PAIRS} or more")
    return n
