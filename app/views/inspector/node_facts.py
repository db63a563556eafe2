"""Facts of a node as words and links. Pure."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from app.theme.text import bytes_text, duration_text, plural
from app.views.inspector.rich import link
from engine.trace.metrics import statistics
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from engine.core.explain import Explanation
    from engine.core.table import PlanTable
    from engine.trace.records import Spans

NODE_LINK = "node:"
MAX_READERS = 8


def facts_line(table: PlanTable, explanation: Explanation, slot: int) -> str:
    """Operation, type and shape, bytes, and the split it is in."""
    line = f"{explanation.facts} · {bytes_text(int(table.n_bytes[slot]))}"
    if explanation.node_id >= 0:
        line += f" · split {int(table.split[explanation.node_id])}"
    return line


def reads_html(table: PlanTable, slot: int, colour: str) -> str:
    """What a tensor reads: nodes as links, weights and inputs with their memory."""
    parts = []
    for source in table.sources(slot):
        name = table.name[source]
        node_id = source - table.n_leafs
        if node_id >= 0:
            parts.append(link(f"{NODE_LINK}{node_id}", name, colour))
        else:
            parts.append(html.escape(f"{name} ({_home(table, source)})"))
    return ", ".join(parts) or "nothing"


def readers_html(table: PlanTable, slot: int, colour: str) -> str:
    """Who reads a tensor, as links."""
    readers = table.readers(slot)
    shown = [
        link(f"{NODE_LINK}{node_id}", table.name[table.slot(node_id)], colour)
        for node_id in readers[:MAX_READERS]
    ]
    rest = len(readers) - len(shown)
    if rest:
        shown.append(f"and {plural(rest, 'other')}")
    return ", ".join(shown) or "nobody"


def neighbour_html(table: PlanTable, slot: int, explanation: Explanation, colour: str) -> str:
    """The neighbour that decided, as a link where it is a node."""
    neighbour = table.cause(slot).neighbour
    node_id = neighbour - table.n_leafs
    is_named = node_id >= 0 and explanation.neighbour.endswith(table.name[neighbour])
    if not is_named:
        return html.escape(explanation.neighbour)
    return link(f"{NODE_LINK}{node_id}", explanation.neighbour, colour)


def memory_words(table: PlanTable, slot: int) -> str:
    """Where the bytes of a tensor are."""
    base = int(table.view_src[slot])
    if base >= 0 and table.is_view_op[slot]:
        return f"a view of {table.name[base]}, no bytes of its own"
    if base >= 0:
        return f"written into {table.name[base]}, {_home(table, base)}"
    if int(table.home[slot]) >= 0:
        return _home(table, slot)
    device = table.devices[int(table.backend[slot])]
    return f"compute buffer of {device.name}"


def time_words(spans: Spans | None, table: PlanTable, node_id: int) -> str:
    """What the node itself took, where the device tells times of single nodes."""
    if spans is None or not (spans["plan_id"] == table.plan_id).any():
        return "not run yet"
    mine = spans[(spans["kind"] == SpanKind.NODE) & (spans["plan_id"] == table.plan_id)]
    found = statistics(mine[mine["index"] == node_id])
    if found is None:
        return "not measured by itself: this device times whole splits"
    if found.n == 1:
        return f"{duration_text(found.sum_ns)}, measured once"
    return f"{duration_text(found.p50_ns)}, median of {plural(found.n, 'step')}"


def _home(table: PlanTable, slot: int) -> str:
    home = int(table.home[slot])
    if home >= 0:
        return f"in {table.bufts[home]}"
    return "input of the graph" if table.is_input[slot] else "no memory yet"
