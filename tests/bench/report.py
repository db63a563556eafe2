"""`make bench`: one report of this machine, ours against llama.cpp, Markdown and JSON.

`python -m tests.bench report --help` says how to measure a part of it. Exit status: 0, also
where the machine was too restless for the figures to count, which is said; 1 when a part could not
be measured.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

from engine.errors import UserError
from tests.bench import rendering
from tests.bench.arguments import PARTS, parse
from tests.bench.bars import bars_table
from tests.bench.ceilings import Ceilings
from tests.bench.machine_facts import facts_of
from tests.bench.memory import memory
from tests.bench.opencl import opencl
from tests.bench.ops import ops
from tests.bench.peer_builds import find_peer
from tests.bench.results import Part, Table
from tests.bench.speed import speed
from tests.bench.startup import cold, planning, startup
from tests.bench.tools import Tools
from tests.bench.tracing import tracing
from tests.bench.wire import ChildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OK, NOT_MEASURED = 0, 1
MEASURES: dict[str, Callable[[Tools], Part]] = {
    "prefill": speed, "decode": speed, "tracing": tracing, "memory": memory, "startup": startup,
    "cold": cold, "planning": planning, "ops": ops, "opencl": opencl,
}  # fmt: skip
"""How each part is measured; prefill and decode are one race."""


def main(words: Sequence[str]) -> int:
    """Measure what was asked for, write the report, and return the exit status."""
    wish = parse(words)
    try:
        wish.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=wish.out).close()
    except OSError as error:
        print(f"Cannot write into {wish.out}: {error.strerror}.", file=sys.stderr)
        return NOT_MEASURED
    log = wish.out / "children.log"
    peer = find_peer(log, say)
    say(f"llama.cpp: {peer.why}")
    facts = facts_of(peer)
    say(f"its system_info: {facts['its system_info']}")
    say("measuring the ceilings of this machine")
    tools = Tools(wish, peer, Ceilings(wish.threads), log, say)
    parts, n_missing = [], 0
    for name, measure in chosen(wish.parts):
        try:
            parts.append(measure(tools))
        except (ChildError, UserError) as error:
            n_missing += 1
            parts.append(Part(Table(name.capitalize(), (), (), (f"Not measured. {error}",))))
        print(f"\n{rendering.table_text(parts[-1].table)}\n", flush=True)
        rendering.write(wish.out, facts, parts)
    figures = {name: x for part in parts for name, x in part.figures.items()}
    parts.append(bars_table(figures, is_valid=rendering.is_valid(parts)))
    print(rendering.table_text(parts[-1].table))
    print(f"\n{rendering.verdict(parts)}")
    for path in rendering.write(wish.out, facts, parts):
        say(str(path))
    return NOT_MEASURED if n_missing else OK


def chosen(names: Sequence[str]) -> Iterator[tuple[str, Callable[[Tools], Part]]]:
    """What to measure, each once, in the order of the report."""
    done = []
    for name in PARTS:
        measure = MEASURES[name]
        if name in names and measure not in done:
            done.append(measure)
            yield name, measure


def say(text: str) -> None:
    """Print a line of progress, at once."""
    print(f"- {text}", flush=True)
