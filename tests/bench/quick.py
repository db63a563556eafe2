"""`make bench-quick`: how we stand against llama.cpp, in under a minute.

The demo model on two threads: 32 tokens one by one, a prompt of 128, and what recording costs. The
last line is for programs. Exit status: 0, also where the machine was too restless for the figures
to count, which is said; 1 without a llama.cpp to compare with.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.model.fetch import fetch_demo
from tests.bench.ceilings import Ceilings
from tests.bench.peer_builds import Peer, find_peer
from tests.bench.race import Work, invalid_because, run_race, variations
from tests.bench.stats import Ratio, ratio, speeds
from tests.bench.tools import N_CTX, OURS
from tests.bench.tracing import overhead
from tests.bench.wire import Child, ChildError
from tests.bench.words import ratio_cells, with_quartiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.race import Race

N_THREADS = 2
N_PAIRS = 9
N_TRACED_PAIRS = 200
RACE_S = 25.0
"""Enough three times over, unless something else keeps the processors busy."""
DECODE, PREFILL = Work("decode", 32), Work("prefill", 128)
OK, NOT_COMPARED = 0, 1


def main(words: Sequence[str] = ()) -> int:
    """Measure, print, and return the exit status."""
    argparse.ArgumentParser(
        prog="make bench-quick",
        description="SmolLM2 on two threads against llama.cpp, in under a minute.",
    ).parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "children.log"
        peer = find_peer(log, say)
        say(f"llama.cpp: {peer.why}")
        if peer.build is not None:
            say(f"its system_info ({peer.build.version}): {peer.build.system_info}")
        try:
            race, recording = measured(peer, log)
        except (ChildError, UserError) as error:
            print(f"Not measured. {error}\n{last_line(None, None, None)}")
            return NOT_COMPARED
    return told(race, recording)


def measured(peer: Peer, log: Path) -> tuple[Race, Ratio]:
    """The race, and what recording costs."""
    model = {"path": str(fetch_demo()), "n_threads": N_THREADS, "n_ctx": N_CTX}
    say("measuring the ceilings of this machine")
    ceilings = Ceilings((N_THREADS,))
    say("loading the demo model")
    with Child(OURS, [], log) as ours:
        ours.ask("load", **model, on_gpu=False)
        with ExitStack() as stack:
            sides = [ours]
            if peer.build is not None:
                sides.append(stack.enter_context(peer.child(log)))
                sides[1].ask("load", **model)
            race = run_race(
                sides, (DECODE, PREFILL), ceilings, n_pairs=N_PAIRS, say=say, within_s=RACE_S
            )
        say(f"recording on and off, {N_TRACED_PAIRS} pairs of tokens")
        return race, overhead(ours, N_TRACED_PAIRS)[0]


def told(race: Race, recording: Ratio) -> int:
    """Print what was found; the exit status."""
    decode, prefill = (compared(race, work) for work in (DECODE, PREFILL))
    print(f"recording on over off: {described(recording)}")
    reasons = [f"the ceiling {x}" for x in invalid_because(variations(race.ceilings, N_THREADS))]
    if len(race.ceilings) < N_PAIRS:
        reasons.append(f"only {len(race.ceilings)} of {N_PAIRS} pairs came within {RACE_S:.0f} s")
    for reason in reasons:
        print(f"invalid, not failed: {reason}")
    print(last_line(decode, prefill, recording))
    return NOT_COMPARED if decode is None else OK


def compared(race: Race, work: Work) -> Ratio | None:
    """Print what both sides did; the ratio, None where there is one side only."""
    ours, *rest = (
        with_quartiles(speeds(race.seconds(work, i), work.n_tokens), digits=1)
        for i in range(len(race.laps[work]))
    )
    if not rest:
        print(f"{work.name}: ours {ours} tokens/s")
        return None
    found = ratio(race.seconds(work, 0), race.seconds(work, 1))
    print(f"{work.name}: ours {ours}, llama.cpp {rest[0]} tokens/s, ratio {described(found)}")
    return found


def described(found: Ratio) -> str:
    """A ratio for people."""
    quartiles, interval = ratio_cells(found)
    return f"{quartiles}, 95 % interval {interval}"


def last_line(decode: Ratio | None, prefill: Ratio | None, recording: Ratio | None) -> str:
    """The line that programs read."""
    named = {"decode": decode, "prefill": prefill, "overhead": recording}
    return " ".join(
        f"{name}_ratio={'n/a' if found is None else format(found.median, '.3f')}"
        for name, found in named.items()
    )


def say(text: str) -> None:
    """Print a line of progress, at once."""
    print(f"- {text}", flush=True)
