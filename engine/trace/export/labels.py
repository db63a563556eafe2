"""Name and arguments of a slice, the same words in every format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.core.experts import runs_text
from engine.trace.lanes import overlap
from engine.trace.links import links
from engine.trace.records import SpanFlag, SpanKind, StepKind

if TYPE_CHECKING:
    from engine.trace.export.meta import TraceMeta
    from engine.trace.links import Link
    from engine.trace.records import Spans
    from engine.trace.snapshot import TraceSnapshot

Value = int | float | str

PREDICTED_CLOCK = "virtual, ns: predicted, not measured"


class Row(NamedTuple):
    """A span as Python numbers, in the order of SPAN_DTYPE; `item_id` is its `index`."""

    kind: int
    lane: int
    peer: int
    flags: int
    plan_id: int
    item_id: int
    step: int
    start_ns: int
    end_ns: int
    n_bytes: int
    first_expert: int
    last_expert: int


@dataclass(frozen=True, slots=True)
class Label:
    """What a slice is called, its category, and the arguments that never change for it.

    It depends on the fields of a row up to `item_id` only, so it can be kept from step to step.
    """

    name: str
    category: str
    args: dict[str, Value]


def label(meta: TraceMeta, row: Row) -> Label:
    """The label of any span."""
    words = _LABELS[SpanKind(row.kind)](meta, row)
    words.args["plan"] = row.plan_id
    if row.flags & SpanFlag.CLOCK_CONVERTED:
        words.args["clock"] = "device clock, mapped to the host's"
    return words


def label_key(row: Row) -> tuple[int, ...]:
    """Rows of equal keys have equal labels."""
    return row[:6]


def measured_args(row: Row) -> dict[str, Value]:
    """The arguments that differ from step to step."""
    args: dict[str, Value] = {"step": row.step}
    duration_ns = row.end_ns - row.start_ns
    if row.kind in (SpanKind.COPY, SpanKind.EXCHANGE):
        args["bytes"] = row.n_bytes
        if row.first_expert >= 0:
            args["experts"] = runs_text([(row.first_expert, row.last_expert)])
        if duration_ns:
            args["MiB/s"] = round(row.n_bytes / (1 << 20) * 1e9 / duration_ns, 1)
            args["GB/s"] = round(row.n_bytes / duration_ns, 3)
    elif row.kind == SpanKind.STEP:
        args["tokens"] = row.n_bytes
        if duration_ns:
            args["tokens/s"] = round(row.n_bytes * 1e9 / duration_ns, 2)
    return args


def run_args(meta: TraceMeta, snapshot: TraceSnapshot, origin_ns: int) -> dict[str, Value]:
    """What is said once about the whole trace."""
    args: dict[str, Value] = {"command": meta.command} if meta.command else {}
    args |= {f"option {name}": value for name, value in meta.options}
    args |= {
        "clock": PREDICTED_CLOCK if meta.is_predicted else "host monotonic, ns",
        "clock_origin_ns": origin_ns,
        "lost_spans": snapshot.lost,
        "recorder_overhead_ns": snapshot.overhead_ns,
        "node_times_off_by_at_most_ns": snapshot.node_error_ns,
    }
    spans = snapshot.without_nodes()
    return args | _overlap_args(meta, spans) | _link_args(meta, spans)


def _overlap_args(meta: TraceMeta, spans: Spans) -> dict[str, Value]:
    """How long devices computed at once: at least two of them, then each pair."""
    found = overlap(spans)
    pairs: dict[str, Value] = {
        f"overlap_ns {meta.lane(a).name} and {meta.lane(b).name}": time_ns
        for (a, b), time_ns in found.pairs.items()
    }
    return {"overlap_ns": found.total_ns} | pairs


def _link_args(meta: TraceMeta, spans: Spans) -> dict[str, Value]:
    return {
        f"link {meta.lane(link.source_lane).name} to {meta.lane(link.target_lane).name}": (
            link_words(link)
        )
        for link in links(spans)
    }


def link_words(link: Link) -> str:
    """What was moved over a link."""
    copies = f"{link.n_transfers} {'copy' if link.n_transfers == 1 else 'copies'}"
    return f"{copies}, {link.n_bytes} bytes, {link.gb_per_s:.3f} GB/s while busy"


def _split(meta: TraceMeta, row: Row) -> Label:
    split = meta.split(row.plan_id, row.item_id)
    args: dict[str, Value] = {"split": row.item_id}
    if split.n_nodes:
        args["nodes"] = split.n_nodes
    return Label(split.name, "split", args)


def _copy(meta: TraceMeta, row: Row) -> Label:
    copy = meta.copy(row.plan_id, row.item_id)
    args: dict[str, Value] = {
        "copy": row.item_id,
        "from": meta.lane(row.peer).name,
        "into": meta.lane(row.lane).name,
        "what": _copied(row.flags),
    }
    if copy is None:
        return Label(f"copy {row.item_id}", "copy", args)
    args["split"] = copy.consumer
    if copy.n_experts:
        args["of experts"] = copy.n_experts
        args["bytes of all experts"] = copy.n_bytes
    return Label(copy.name, "copy", args)


def _copied(flags: int) -> str:
    if flags & SpanFlag.WEIGHT:
        return "weight"
    return "user input" if flags & SpanFlag.USER_INPUT else "activation"


def _shard(meta: TraceMeta, row: Row) -> Label:
    split = meta.split(row.plan_id, row.item_id)
    return Label(split.name, "share", {"share of split": row.item_id})


def _exchange(meta: TraceMeta, row: Row) -> Label:
    args: dict[str, Value] = {
        "split": row.item_id,
        "from": meta.lane(row.peer).name,
        "into": meta.lane(row.lane).name,
    }
    return Label(f"exchange in {meta.split(row.plan_id, row.item_id).name}", "exchange", args)


def _wait(meta: TraceMeta, row: Row) -> Label:
    return Label(f"wait for {meta.lane(row.lane).name}", "wait", {"split": row.item_id})


def _node(meta: TraceMeta, row: Row) -> Label:
    node = meta.node(row.plan_id, row.item_id)
    args: dict[str, Value] = {"node": row.item_id}
    if node.op:
        args["op"] = node.op
    if node.split is not None:
        args["split"] = node.split
    if node.cause:
        args["cause"] = node.cause
    return Label(f"{node.op} {node.name}".strip(), "node", args)


def _step(meta: TraceMeta, row: Row) -> Label:
    del meta
    return Label(f"{StepKind(row.peer).name.lower()} {row.item_id}", "step", {})


def _plan(meta: TraceMeta, row: Row) -> Label:
    del meta
    return Label(f"plan {row.plan_id}", "plan", {"plan": row.plan_id})


_LABELS = {
    SpanKind.SPLIT: _split,
    SpanKind.COPY: _copy,
    SpanKind.WAIT: _wait,
    SpanKind.NODE: _node,
    SpanKind.STEP: _step,
    SpanKind.PLAN: _plan,
    SpanKind.SHARD: _shard,
    SpanKind.EXCHANGE: _exchange,
}
