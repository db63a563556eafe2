"""Plan tables of graphs recorded from llama.cpp for many architectures: shapes only, one device.

A line of a recording: id, operation, name, type and shape, "<-", sources ("nK" is node K).
"""

import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from engine.core.devices import DeviceType
from engine.core.ops import VIEW_OPS
from engine.core.plan import Batch, BatchShape
from engine.core.table import COPY_DTYPE, MAX_SRC, SPLIT_DTYPE, DeviceRow, PlanTable, pack_strings
from engine.sched.planner import layers_of
from tests.oracle import golden

_LINE = re.compile(r"\s*\d+ (\S+)\s+(.*?)\s+\w+ +\[[\d,]+\]\s+<-(.*?)(?:\s+\{.*)?$")
_NODE = re.compile(r"n(\d+)$")

CPU = DeviceRow("CPU", "CPU", "a CPU on paper", DeviceType.CPU, "CPU", 0, 0, "")


def recorded_names() -> list[str]:
    return sorted(path.stem for path in golden.path("arch/graphs/").glob("*.txt"))


def recorded_plan(name: str) -> tuple[PlanTable, int]:
    """The table of a recorded graph, and how many layers it has."""
    text = golden.path(f"arch/graphs/{name}.txt").read_text()
    rows = [found.groups() for found in map(_LINE.match, text.splitlines()) if found]
    leafs = list(dict.fromkeys(s for row in rows for s in row[2].split() if not _NODE.match(s)))
    n_leafs = len(leafs)
    slots = {leaf: i for i, leaf in enumerate(leafs)}
    names = [name.strip() for _, name, _ in rows]
    numbers = [int(found) for n in names for found in re.findall(r"-(\d+)(?=$| \()", n)]
    n_layers = 1 + max(numbers)
    nodes = [SimpleNamespace(name=name) for name in names]
    layer = layers_of(cast("Any", SimpleNamespace(nodes=nodes)), n_layers)
    src = np.full((n_leafs + len(rows), MAX_SRC), -1)
    view_src = np.full(n_leafs + len(rows), -1)
    for i, (op, _, sources) in enumerate(rows):
        found = [_slot(source, slots, n_leafs) for source in sources.split()]
        src[n_leafs + i, : len(found)] = found
        if op in VIEW_OPS or op in ("SET_ROWS", "CPY"):
            at = found[0] if op in VIEW_OPS else found[-1]
            view_src[n_leafs + i] = view_src[at] if view_src[at] >= 0 else at
    return _table(rows, names, leafs, layer, src, view_src), n_layers


def _slot(source, slots, n_leafs):
    node = _NODE.match(source)
    return n_leafs + int(node.group(1)) if node else slots[source]


def _table(rows, names, leafs, layer, src, view_src):
    n, n_slots = len(rows), len(leafs) + len(rows)
    splits = np.zeros(1, SPLIT_DTYPE)
    splits["stop"] = n
    none = np.zeros(n_slots, bool)
    is_weight = np.array([leaf.endswith((".weight", ".bias")) for leaf in leafs] + [False] * n)
    is_input = np.array(["inp" in leaf or "out_ids" in leaf for leaf in leafs] + [False] * n)
    return PlanTable(
        plan_id=1, batch=Batch.PROMPT, shape=BatchShape(8, 256, 8), op_offload=True,
        devices=(CPU,), bufts=(), n_leafs=len(leafs), n_nodes=n,
        name=pack_strings([*leafs, *names]),
        op=pack_strings(["NONE"] * len(leafs) + [op for op, _, _ in rows]),
        type=np.zeros(n_slots, int), ne=np.ones((n_slots, 4), int), n_bytes=np.ones(n_slots, int),
        src=src, view_src=view_src, home=np.full(n_slots, -1), is_weight=is_weight,
        is_input=is_input,
        is_view_op=np.array([False] * len(leafs) + [op in VIEW_OPS for op, _, _ in rows]),
        backend=np.zeros(n_slots, int), cause_kind=np.zeros(n_slots, int),
        cause_src=np.full(n_slots, -1), cause_neighbour=np.full(n_slots, -1), step_names=(),
        step_backend=np.zeros((0, n_slots), int), supports_op=none[None], offload_op=none[None],
        supports_buft=np.zeros((1, 0), bool), split=np.zeros(n, int),
        layer=np.array([layer[i] for i in range(n)]), occurrence=np.zeros(n, int),
        splits=splits, copies=np.zeros(0, COPY_DTYPE),
    )  # fmt: skip
