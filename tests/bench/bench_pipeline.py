"""A prompt on two devices, as a pipeline and not: python tests/bench/bench_pipeline.py [PAIRS]

The two OpenCL devices are halves of the CPU's cores where there is no GPU. Both ways take turns, so
that whatever else the machine does falls on both. The ratio is that of pairs, time without a
pipeline over time with one: median and a bootstrap interval of 95 %. Its limit for 2 devices and m
graphs is 2 m / (m + 1).
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine import paths
from engine.core.options import Options
from engine.model.fetch import fetch_demo
from engine.session import Session
from engine.trace.records import StepKind
from tests.bench.stats import ratio, turns

if TYPE_CHECKING:
    from engine.model.context import ModelContext

N_GRAPHS = 16
UBATCH_TOKENS = 32
TOKENS = [1000 + 37 * i % 20000 for i in range(N_GRAPHS * UBATCH_TOKENS)]
SHARED = Options(
    devices=("OpenCL0", "OpenCL1"), tensor_split=(1, 1), n_ctx=1024, n_ubatch=UBATCH_TOKENS
)


def main() -> None:
    """Print the ratio, and what ran at the same time."""
    os.environ.setdefault("SPLITSCOPE_OPENCL_PARTS", "2")
    paths.configure_environment()
    n_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    sessions = [opened(n_copies) for n_copies in (1, 4)]
    contexts = [session.prepare() for session in sessions]
    for context in contexts:
        seconds_of(context)
    times: tuple[list[float], list[float]] = ([], [])
    for order in turns(n_pairs):
        for i in order:
            times[i].append(seconds_of(contexts[i]))
    found = ratio(times[1], times[0])
    limit = 2 * N_GRAPHS / (N_GRAPHS + 1)
    times_as_fast = f"{found.median:.2f} times as fast ({found.low:.2f} to {found.high:.2f})"
    print(f"{N_GRAPHS} graphs of {UBATCH_TOKENS} tokens, {n_pairs} pairs: {times_as_fast}")
    print(f"the limit is {limit:.2f}")
    for session in sessions:
        session.close()


def opened(n_copies: int) -> Session:
    """A session with the demo model and as many graphs under way."""
    session = Session()
    session.open(str(fetch_demo()))
    session.options = replace(SHARED, n_copies=n_copies)
    return session


def seconds_of(context: ModelContext) -> float:
    """How long the prompt takes."""
    context.clear()
    start = time.perf_counter()
    context.decode(TOKENS, StepKind.PROMPT)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
