"""Name and arguments of a slice, the same words in every format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.trace.records import SpanFlag, SpanKind, StepKind

if TYPE_CHECKING:
    from engine.trace.export.meta import TraceMeta
    from engine.trace.snapshot import TraceSnapshot

Value = int | float | str


class Row(NamedTuple):
    """A span as Python numbers, in the order of SPAN_DTYPE."""

    kind: int
    lane: int
    peer: int
    flags: int
    plan_id: int
    index: int
    step: int
    start_ns: int
    end_ns: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Label:
    """What a slice is called, its category, and arguments in display order."""

    name: str
    category: str
    args: dict[str, Value]


def label(meta: TraceMeta, row: Row) -> Label:
    """The label of any span."""
    return _LABELS[SpanKind(row.kind)](meta, row)


def run_args(meta: TraceMeta, snapshot: TraceSnapshot, origin_ns: int) -> dict[str, Value]:
    """What is said once about the whole trace."""
    args: dict[str, Value] = {"command": meta.command} if meta.command else {}
    args |= {f"option {name}": value for name, value in meta.options}
    args |= {
        "clock": "host monotonic, ns",
        "clock_origin_ns": origin_ns,
        "lost_spans": snapshot.lost,
        "recorder_overhead_ns": snapshot.overhead_ns,
    }
    return args


def rate_mib_s(n_bytes: int, duration_ns: int) -> float:
    """Bandwidth in MiB/s with one decimal; the duration is not 0."""
    return round(n_bytes / (1 << 20) * 1e9 / duration_ns, 1)


def _split(meta: TraceMeta, row: Row) -> Label:
    split = meta.split(row.plan_id, row.index)
    args: dict[str, Value] = {"split": row.index}
    if split.n_nodes:
        args["nodes"] = split.n_nodes
    return Label(split.name, "split", args | _common(row))


def _copy(meta: TraceMeta, row: Row) -> Label:
    copy = meta.copy(row.plan_id, row.index)
    args: dict[str, Value] = {
        "copy": row.index,
        "from": meta.lane(row.peer).name,
        "into": meta.lane(row.lane).name,
        "what": _copied(row.flags),
        "bytes": row.n_bytes,
    }
    if row.end_ns > row.start_ns:
        args["MiB/s"] = rate_mib_s(row.n_bytes, row.end_ns - row.start_ns)
    if copy is not None:
        args["split"] = copy.consumer
    name = f"copy {row.index}" if copy is None else copy.name
    return Label(name, "copy", args | _common(row))


def _copied(flags: int) -> str:
    if flags & SpanFlag.WEIGHT:
        return "weight"
    return "user input" if flags & SpanFlag.USER_INPUT else "activation"


def _wait(meta: TraceMeta, row: Row) -> Label:
    args: dict[str, Value] = {"split": row.index}
    return Label(f"wait for {meta.lane(row.lane).name}", "wait", args | _common(row))


def _node(meta: TraceMeta, row: Row) -> Label:
    node = meta.node(row.plan_id, row.index)
    args: dict[str, Value] = {"node": row.index}
    if node.op:
        args["op"] = node.op
    if node.split is not None:
        args["split"] = node.split
    if node.cause:
        args["cause"] = node.cause
    return Label(f"{node.op} {node.name}".strip(), "node", args | _common(row))


def _step(meta: TraceMeta, row: Row) -> Label:
    del meta
    kind = StepKind(row.peer).name.lower()
    args: dict[str, Value] = {"tokens": row.n_bytes}
    if row.end_ns > row.start_ns:
        args["tokens/s"] = round(row.n_bytes * 1e9 / (row.end_ns - row.start_ns), 2)
    return Label(f"{kind} {row.step}", "step", args | _common(row))


def _common(row: Row) -> dict[str, Value]:
    args: dict[str, Value] = {"step": row.step, "plan": row.plan_id}
    if row.flags & SpanFlag.CLOCK_CONVERTED:
        args["clock"] = "device clock, mapped to the host's"
    return args


_LABELS = {
    SpanKind.SPLIT: _split,
    SpanKind.COPY: _copy,
    SpanKind.WAIT: _wait,
    SpanKind.NODE: _node,
    SpanKind.STEP: _step,
}
