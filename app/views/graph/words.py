"""What the graph says in words: sizes at copies, the title's fact, tooltips, gutter lines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.theme.text import GIB, KIB, MIB, MINUS, bytes_text, count, plural
from engine.core.plan import Batch

EN_DASH = "\u2013"

if TYPE_CHECKING:
    from app.views.graph.columns import GraphShape
    from app.views.graph.placed import Changed, Placed
    from engine.core.table import PlanTable


def size_text(n_bytes: int, side: int = 0) -> str:
    """A size in four characters or so: "540K", "1.1M"; with a sign for what is gone or new."""
    sign = {-1: MINUS, 1: "+"}.get(side, "")
    if n_bytes < KIB:
        return f"{sign}{n_bytes}B"
    if n_bytes < MIB:
        return f"{sign}{max(round(n_bytes / KIB), 1)}K"
    unit, letter = (MIB, "M") if n_bytes < GIB else (GIB, "G")
    return f"{sign}{n_bytes / unit:.1f}{letter}"


def size_range(low: int, high: int) -> str:
    """One size, or two with their unit once: "3.24-3.25 MiB"."""
    first, last = bytes_text(low), bytes_text(high)
    if first == last:
        return first
    number, unit = first.rsplit(maxsplit=1)
    return f"{number if last.endswith(unit) else first}{EN_DASH}{last}"


def batch_text(plan: PlanTable, reads: str = "prompt") -> str:
    """The batch a plan is for: "prompt 512", "one token"; `reads` is a prompt or a text."""
    if plan.batch is Batch.TOKEN and plan.shape.n_tokens == 1:
        return "one token"
    return f"{reads} {count(plan.shape.n_tokens)}"


def fact_text(
    plan: PlanTable, *, ran: bool, difference: bool, open_layer: str, reads: str = "prompt"
) -> str:
    """The grey fact of the title row; `reads` is a prompt or a text."""
    if not plan.n_nodes:
        return "no operation is planned"
    if difference:
        return f"{batch_text(plan, reads)} · difference"
    if ran:
        batch = f"the {reads} batch" if plan.batch is Batch.PROMPT else "the token batch"
        tokens = plural(plan.shape.n_tokens, "token")
        return f"{batch} that ran: {tokens} · {plural(len(plan.splits), 'split')}"
    opened = f", {open_layer} open" if open_layer else ""
    return f"{batch_text(plan, reads)} · a row a layer{opened}"


def nodes_text(plan: PlanTable) -> str:
    """How many nodes, views said: "936 nodes: 576 compute, 360 views"."""
    views = plan.n_nodes - plan.n_computed
    return f"{plural(plan.n_nodes, 'node')}: {count(plan.n_computed)} compute, {count(views)} views"


def row_text(shape: GraphShape, placed: Placed, row: int) -> str:
    """A row's figures: "layer 3: 11 splits, 3.24 MiB copied"."""
    label = shape.row_label(row)
    name = f"layer {label}" if label.isdigit() else label
    n_splits, copied = int(placed.splits_of_row[row]), int(placed.copied_of_row[row])
    return f"{name}: {plural(n_splits, 'split')} begin here, {bytes_text(copied)} copied"


def cell_tip(shape: GraphShape, placed: Placed, changed: Changed | None, cell: int) -> str:
    """A node's name, operation, shape, device, reason, split and bytes; a line each."""
    plan = placed.plan
    node_id = int(shape.node_id[cell])
    slot = plan.slot(node_id)
    device = plan.devices[int(plan.backend[slot])].name
    ne = ", ".join(str(int(n)) for n in _without_ones(plan, slot))
    lines = [
        f"{plan.name[slot]}  #{node_id}",
        f"{plan.op[slot]} · {plan.type_label(slot)} [{ne}] · {bytes_text(int(plan.n_bytes[slot]))}",
        f"{device} · {plan.tag(slot) or 'no tag'} · split {int(plan.split[node_id])}",
    ]
    if placed.copied[cell]:
        lines.append(f"{bytes_text(int(placed.copied[cell]))} copied in before it")
    if changed is not None:
        lines += _change_lines(placed, changed, cell)
    return "\n".join(lines)


def _without_ones(plan: PlanTable, slot: int) -> list[int]:
    ne = [int(n) for n in plan.ne[slot]]
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    return ne


def _change_lines(placed: Placed, changed: Changed, cell: int) -> list[str]:
    devices = placed.plan.devices
    was = int(changed.was_device[cell])
    lines = []
    if changed.moved[cell] and was >= 0:
        is_here = was < len(devices)
        lines.append(f"was on {devices[was].name if is_here else 'a device that is gone'}")
    if changed.bar[cell]:
        what = "gone" if changed.bar[cell] < 0 else "new"
        lines.append(f"{what} before it: a cut, {bytes_text(int(changed.bar_bytes[cell]))} copied")
    return lines
