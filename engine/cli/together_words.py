"""How several devices worked together in a run, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import NONE, mib, ms, plain, print_table
from engine.trace.idle import IdleCause

if TYPE_CHECKING:
    from engine.core.summary import DeviceTime, LinkTime, Together

_DEVICE_HEADS = (
    "device", "busy ms", "busy %", "idle: copy ms", "device ms", "host ms", "nothing ms",
    "at fault for most",
)  # fmt: skip
_LINK_HEADS = ("from", "to", "transfers", "MiB", "busy ms", "GB/s", "p50 us", "p95 us")


def together_data(found: Together | None) -> dict[str, Any] | None:
    """The same for programs."""
    if found is None:
        return None
    data: dict[str, Any] = plain(found)
    for link, row in zip(found.links, data["links"], strict=True):
        row["gb_per_s"] = link.gb_per_s
    return data


def print_together(found: Together) -> None:
    """What each device did, what was moved, how long they worked at once, and the pipeline."""
    print()
    print_table(_DEVICE_HEADS, [_device_row(device, found.wall_ns) for device in found.devices])
    if found.links:
        print()
        print_table(_LINK_HEADS, [_link_row(link) for link in found.links])
    print()
    print(_overlap_words(found))
    if found.n_steps < found.n_run_steps:
        print(f"all of this is of the last {found.n_steps:,} of {found.n_run_steps:,} steps")
    print(pipeline_words(found.n_copies, found.pipeline_obstacle))


def _device_row(device: DeviceTime, wall_ns: int) -> tuple[str, ...]:
    idle_ns = {idle.cause: idle.time_ns for idle in device.idle}
    return (
        device.name,
        ms(device.busy_ns),
        _percent(device.busy_ns, wall_ns),
        *(ms(idle_ns[cause]) if cause in idle_ns else NONE for cause in IdleCause),
        _worst_words(device),
    )


def _worst_words(device: DeviceTime) -> str:
    """What one thing it waited for the longest."""
    worst = max(device.idle, key=lambda idle: idle.worst_ns, default=None)
    if worst is None or not worst.worst_ns:
        return NONE
    return f"{worst.cause}, {ms(worst.worst_ns)} ms: {worst.worst}"


def _link_row(link: LinkTime) -> tuple[str, ...]:
    return (
        link.source,
        link.target,
        f"{link.n_transfers:,}",
        mib(link.n_bytes),
        ms(link.busy_ns),
        f"{link.gb_per_s:.2f}" if link.busy_ns else NONE,
        f"{link.p50_ns / 1e3:,.1f}",
        f"{link.p95_ns / 1e3:,.1f}",
    )


def _overlap_words(found: Together) -> str:
    """How long at least two devices computed, and which."""
    share = f"{_percent(found.overlap_ns, found.wall_ns)} % of {ms(found.wall_ns)} ms"
    pairs = ", ".join(
        f"{' and '.join(pair.devices)} {ms(pair.time_ns)} ms" for pair in found.overlaps
    )
    words = f"at least two devices computed for {ms(found.overlap_ns)} ms, {share}"
    return f"overlap: {words} ({pairs})" if pairs else f"overlap: {words}"


def pipeline_words(n_copies: int, obstacle: str) -> str:
    """How many prompt graphs may be under way at once, or why it is one."""
    if obstacle:
        return f"pipeline off: {obstacle}"
    return f"pipeline on: up to {n_copies} prompt graphs at once (--n-copies)"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "0.0"
