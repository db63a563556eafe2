"""Idle time, links and the critical path in words. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from app.theme.text import SPACE, bytes_text, count, duration_text, percent_text
from engine.trace.idle import IdleCause
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from app.views.timeline.analysis import Analysis
    from engine.core.summary import Together
    from engine.core.table import PlanTable
    from engine.trace.critical import PathPiece
    from engine.trace.idle import LaneUse
    from engine.trace.lanes import Thing
    from engine.trace.links import Link

    PlanOf = Callable[[int], PlanTable | None]
    NameOf = Callable[[int], str]

CAUSE_WORDS = {
    IdleCause.COPY: "waits for a copy",
    IdleCause.DEVICE: "waits for another device",
    IdleCause.HOST: "waits for the host",
    IdleCause.NOTHING: "nothing to do",
}
"""What an idle device does."""

SHORT_CAUSES = {
    IdleCause.COPY: "copy",
    IdleCause.DEVICE: "device",
    IdleCause.HOST: "host",
    IdleCause.NOTHING: "no work",
}
"""What it waits for in a word."""

LEAST_SHARE = 0.01
"""Less of a run is left out of its line; the tooltip of a lane's head has it all."""

_HOST_WORDS = {
    SpanKind.PLAN: "the host plans a new batch shape",
    SpanKind.WAIT: "the host waits",
    SpanKind.STEP: "the host sets inputs and queues work",
}

_PATH_ORDER = ("compute", "copy", "host")
_PATH_PARTS = {
    SpanKind.SPLIT: "compute",
    SpanKind.SHARD: "compute",
    SpanKind.COPY: "copy",
    SpanKind.EXCHANGE: "copy",
}


def thing_words(thing: Thing | None, plan_of: PlanOf, name_of: NameOf) -> str:
    """What a thing is: a split and its device, a copy and where it goes, what the host does."""
    if thing is None:
        return "the host, between steps"
    if thing.kind in _HOST_WORDS:
        return _HOST_WORDS[thing.kind]
    plan, where = plan_of(thing.plan_id), name_of(thing.lane)
    if thing.kind is SpanKind.COPY:
        what = f"copy {thing.item_id}" if plan is None else plan.copy_name(thing.item_id)
        return f"{what}, copied into {where}"
    name = "" if plan is None else f", {plan.split_name(thing.item_id)}"
    if thing.is_launching:
        return f"the host launches pieces of split {thing.item_id}{name}"
    if thing.kind is SpanKind.EXCHANGE:
        return f"what split {thing.item_id} hands over to {where}{name}"
    share = "the share of " if thing.kind is SpanKind.SHARD else ""
    return f"{share}split {thing.item_id} on {where}{name}"


def use_words(use: LaneUse, name: str) -> str:
    """How a device spent the run: "OpenCL0 busy 61 %, idle: copy 3 %, host 36 %"."""
    if not use.wall_ns:
        return name
    shares = {cause: use.idle_ns.get(cause, 0) / use.wall_ns for cause in IdleCause}
    idle = [
        f"{SHORT_CAUSES[cause]} {_whole_percent(share)}"
        for cause, share in shares.items()
        if share >= LEAST_SHARE
    ]
    busy = f"{name} busy {_whole_percent(use.busy_ns / use.wall_ns)}"
    return f"{busy}, idle: {', '.join(idle)}" if idle else busy


def use_tip(use: LaneUse, name: str, plan_of: PlanOf, name_of: NameOf) -> str:
    """The same in lines, with what was at fault for most of each."""
    wall_ns = max(use.wall_ns, 1)
    lines = [f"{name}: busy {duration_text(use.busy_ns)}, {percent_text(use.busy_ns / wall_ns)}"]
    for cause in IdleCause:
        idle_ns = use.idle_ns.get(cause, 0)
        if not idle_ns:
            continue
        lines.append(
            f"{CAUSE_WORDS[cause]}: {duration_text(idle_ns)}, {percent_text(idle_ns / wall_ns)}"
        )
        worst = use.worst.get(cause)
        if worst is not None and cause is not IdleCause.NOTHING:
            what = thing_words(worst.thing, plan_of, name_of)
            lines.append(f"   most of it, {duration_text(worst.total_ns)}: {what}")
    return "\n".join(lines)


def link_tip(link: Link, name_of: NameOf) -> str:
    """A link in lines: how much, how fast, how long a copy takes."""
    return (
        f"{name_of(link.source_lane)} to {name_of(link.target_lane)}\n"
        f"{bytes_text(link.n_bytes)} in {count(link.n_transfers)} pieces, {rate_words(link)}\n"
        f"a piece takes {duration_text(link.p50_ns)} in the middle, "
        f"{duration_text(link.p95_ns)} at p95"
    )


def rate_words(link: Link) -> str:
    """A link's rate while something is under way."""
    return f"{count(link.gb_per_s, 1)}{SPACE}GB/s"


def run_words(
    analysis: Analysis, lanes: Iterable[int], name_of: NameOf, together: Together | None = None
) -> tuple[str, ...]:
    """How much of a run several devices computed at once, then how each of `lanes` spent it.

    `together` (optional) also says whether there was a pipeline, and of how long a run it is.
    """
    uses = [analysis.uses[lane] for lane in lanes if lane in analysis.uses]
    if not uses:
        return ()
    words = _extent_words(analysis, together)
    wall_ns = max((use.wall_ns for use in analysis.uses.values()), default=0)
    if len(analysis.uses) > 1 and wall_ns:
        share = _whole_percent(analysis.overlap.total_ns / wall_ns)
        pipeline = "" if together is None else pipeline_words(together)
        words += f": several at once {share}{pipeline}"
    return (words, *(use_words(use, name_of(use.lane)) for use in uses))


def _extent_words(analysis: Analysis, together: Together | None) -> str:
    if together is None or together.n_run_steps <= analysis.n_steps:
        return "whole run"
    return f"last {count(analysis.n_steps)} of {count(together.n_run_steps)} steps"


def pipeline_words(together: Together) -> str:
    """Whether prompt graphs were under way at once, and if not, why."""
    if together.n_copies > 1:
        return f", pipeline of {count(together.n_copies)} graphs"
    return f", no pipeline: {together.pipeline_obstacle}" if together.pipeline_obstacle else ""


def path_words(pieces: Sequence[PathPiece]) -> str:
    """What bounded a step: "compute 61.0 %, copy 20.0 %, host 19.0 %"."""
    sums: dict[str, int] = defaultdict(int)
    for piece in pieces:
        part = "host" if piece.thing.is_launching else _PATH_PARTS.get(piece.thing.kind, "host")
        sums[part] += piece.duration_ns
    total = sum(sums.values())
    if not total:
        return ""
    return ", ".join(f"{part} {percent_text(sums[part] / total)}" for part in _PATH_ORDER)


def _whole_percent(share: float) -> str:
    return f"{count(100 * share)}{SPACE}%"
