"""Where every operation stands in the matrix: a row a layer, a column an operation.

Columns come from the graph itself: the most common layer's sequence of computed nodes, widened by
what other layers have more. Row 0 is "in", rows 1 .. n_layers are layers, the last is "out". Views
are not drawn. Nothing here depends on a placement, so a change never moves anything.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from app.views.graph.names import Head, head_of, role_of, role_of_weight, units_of
from app.views.rows import rows_of
from engine.core.devices import DeviceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.table import PlanTable, Strings

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]

_RECURRENT_OPS = frozenset({"SSM_CONV", "SSM_SCAN", "RWKV_WKV6", "RWKV_WKV7", "GATED_DELTA_NET"})
_NORM_OPS = frozenset({"RMS_NORM", "NORM"})


class Role(NamedTuple):
    """What makes nodes of two layers the same operation."""

    name: str
    op: str


@dataclass(frozen=True, slots=True)
class Column:
    """One operation of a layer. `can_cut`: a split can begin here (weight or cache involved)."""

    role: Role
    head: Head
    units: float
    can_cut: bool
    is_extra: bool
    """Only some layers have it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Columns [start, stop) under one title."""

    title: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class GraphShape:
    """The computed nodes of a plan as cells, in execution order.

    `column` counts from 0 within the "in" and "out" rows, whose cells follow one another freely.
    `kind` numbers the distinct sequences of layers; -1 for "in" and "out".
    """

    n_layers: int
    n_nodes: int
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    node_id: Ints
    row: Ints
    column: Ints
    heads: tuple[Head, ...]
    kind: Ints
    row_start: Ints
    """[n_rows + 1] into `by_row`."""
    by_row: Ints
    """Cells sorted by row, then in execution order."""

    @property
    def n_rows(self) -> int:
        """Rows with "in" and "out"."""
        return self.n_layers + 2

    @property
    def n_cells(self) -> int:
        """Computed nodes."""
        return len(self.node_id)

    def cells_of_row(self, row: int) -> Ints:
        """The cells of one row, in execution order."""
        return self.by_row[int(self.row_start[row]) : int(self.row_start[row + 1])]

    def cell_of_node(self, node_id: int) -> int:
        """The cell of a node; -1 for a view or none."""
        place = int(np.searchsorted(self.node_id, node_id))
        found = place < self.n_cells and int(self.node_id[place]) == node_id
        return place if found else -1

    def row_label(self, row: int) -> str:
        """The layer's number; "in" and "out" for the first and the last row."""
        if row == 0:
            return "in"
        return "out" if row == self.n_rows - 1 else str(row - 1)


def shape_of(plan: PlanTable, n_layers: int) -> GraphShape:
    """The cells of a plan's graph; a few ms, so keep it for every plan of the same graph."""
    computed = np.flatnonzero(~plan.is_view_op[plan.n_leafs : plan.n_leafs + plan.n_nodes])
    roles = _roles(plan, computed)
    row = rows_of(plan, n_layers)[computed]
    by_row = np.argsort(row, kind="stable")
    row_start = np.searchsorted(row[by_row], np.arange(n_layers + 3))
    layers = [
        [roles[cell] for cell in by_row[row_start[r] : row_start[r + 1]]]
        for r in range(1, n_layers + 1)
    ]
    merged, places, kinds = _merge(layers)
    column = np.arange(len(computed)) - row_start[row]
    for r, sequence in enumerate(places, start=1):
        column[by_row[row_start[r] : row_start[r + 1]]] = sequence
    columns = _columns(plan, merged, layers, computed, row, column)
    heads = {role: head_of(*role) for role in set(roles)}
    return GraphShape(
        n_layers=n_layers,
        n_nodes=plan.n_nodes,
        columns=columns,
        groups=_groups(columns),
        node_id=computed,
        row=row,
        column=column,
        heads=tuple(heads[role] for role in roles),
        kind=np.array([-1, *kinds, -1]),
        row_start=row_start,
        by_row=by_row,
    )


def first_interesting_node(plan: PlanTable) -> int:
    """The first CPU operation of the first layer that has one; what a person asks about first.

    Without one: the first operation on the CPU anywhere, else the first operation; -1 for no node.
    """
    nodes = slice(plan.n_leafs, plan.n_leafs + plan.n_nodes)
    computed = ~plan.is_view_op[nodes]
    cpu_ids = [i for i, device in enumerate(plan.devices) if device.type is DeviceType.CPU]
    on_cpu = computed & np.isin(plan.backend[nodes], cpu_ids)
    for wanted in (on_cpu & (plan.layer >= 0), on_cpu, computed):
        found = np.flatnonzero(wanted)
        if found.size:
            return int(found[0])
    return -1


def _roles(plan: PlanTable, computed: Ints) -> list[Role]:
    slots = (plan.n_leafs + computed).tolist()
    names, ops = _texts(plan.name, slots), _texts(plan.op, slots)
    return [
        Role(role_of(name) or _role_by_weight(plan, slot), op)
        for slot, name, op in zip(slots, names, ops, strict=True)
    ]


def _texts(strings: Strings, indices: list[int]) -> list[str]:
    """Many strings at once; indexing one by one is slower by numpy's scalars."""
    bounds = [0, *strings.stops.tolist()]
    blob = strings.blob
    return [blob[bounds[i] : bounds[i + 1]].decode() for i in indices]


def _role_by_weight(plan: PlanTable, slot: int) -> str:
    weights = [source for source in plan.sources(slot) if plan.is_weight[source]]
    return role_of_weight(plan.name[weights[0]]) if weights else ""


def _merge(layers: list[list[Role]]) -> tuple[list[Role], list[list[int]], list[int]]:
    """All columns, the columns of each layer, and which layers have the same sequence."""
    counts = Counter(tuple(layer) for layer in layers)
    sequences = sorted(counts, key=lambda s: (-counts[s], layers.index(list(s))))
    merged: list[Role] = []
    for sequence in sequences:
        merged = _widen(merged, sequence)
    places = {sequence: _place(merged, sequence) for sequence in sequences}
    kinds = {sequence: kind for kind, sequence in enumerate(sequences)}
    return (
        merged,
        [places[tuple(layer)] for layer in layers],
        [kinds[tuple(layer)] for layer in layers],
    )


def _matching(
    merged: list[Role], sequence: tuple[Role, ...]
) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, merged, sequence, autojunk=False).get_opcodes()


def _widen(merged: list[Role], sequence: tuple[Role, ...]) -> list[Role]:
    """`merged` with what `sequence` has more, in its place."""
    wide: list[Role] = []
    for tag, i0, i1, j0, j1 in _matching(merged, sequence):
        wide += merged[i0:i1]
        if tag in ("insert", "replace"):
            wide += sequence[j0:j1]
    return wide


def _place(merged: list[Role], sequence: tuple[Role, ...]) -> list[int]:
    """The column of each role of a sequence, strictly growing.

    Greedy from the left always succeeds, since `sequence` is a subsequence of `merged`; matching
    from the right as well keeps a role near its neighbours.
    """
    last = len(merged)
    latest = [0] * len(sequence)
    for k in range(len(sequence) - 1, -1, -1):
        last = max(i for i in range(last) if merged[i] == sequence[k])
        latest[k] = last
    places: list[int] = []
    start = 0
    for k, role in enumerate(sequence):
        options = [i for i in range(start, latest[k] + 1) if merged[i] == role]
        beside = [i for i in options if i == start]
        places.append(beside[0] if beside else options[0])
        start = places[-1] + 1
    return places


def _columns(
    plan: PlanTable,
    merged: list[Role],
    layers: list[list[Role]],
    computed: Ints,
    row: Ints,
    column: Ints,
) -> tuple[Column, ...]:
    in_layer = (row > 0) & (row <= len(layers))
    reads_weight = set(column[in_layer & _reads_weight(plan, computed)].tolist())
    uses_cache = set(column[in_layer & _uses_cache(plan, computed)].tolist())
    can_cut = reads_weight | uses_cache | {i + 1 for i in uses_cache}
    present = np.bincount(column[in_layer], minlength=len(merged))
    return tuple(
        Column(
            role=role,
            head=head_of(*role),
            units=units_of(role.op),
            can_cut=i in can_cut,
            is_extra=2 * int(present[i]) <= len(layers),
        )
        for i, role in enumerate(merged)
    )


def _reads_weight(plan: PlanTable, nodes: Ints) -> Bools:
    src = plan.src[plan.n_leafs + nodes]
    result: Bools = np.any((src >= 0) & plan.is_weight[src], axis=1)
    return result


def _uses_cache(plan: PlanTable, nodes: Ints) -> Bools:
    """Whether a node writes into a leaf (its own view source) or reads a view of one."""
    slots = plan.n_leafs + nodes
    roots = np.concatenate([plan.view_src[slots][:, None], _view_roots(plan, slots)], axis=1)
    leaf = (roots >= 0) & (roots < plan.n_leafs) & ~plan.is_weight[roots] & ~plan.is_input[roots]
    result: Bools = np.any(leaf, axis=1)
    return result


def _view_roots(plan: PlanTable, slots: Ints) -> Ints:
    src = plan.src[slots]
    return np.where(src >= 0, plan.view_src[src], -1)


def _groups(columns: tuple[Column, ...]) -> tuple[Group, ...]:
    """Attention and feed-forward; one group where a model's layers have only one of them."""
    if not columns:
        return ()
    stop = len(columns)
    border = next((i for i, c in enumerate(columns) if _is_feed_forward(c.role)), stop)
    for before, after in reversed(list(pairwise(columns[: border + 1]))):
        if not _leads_into(before.role, after.role):
            break
        border -= 1
    parts = [(_mixer_title(columns[:border]), 0, border), ("feed-forward", border, stop)]
    return tuple(Group(*part) for part in parts if part[1] < part[2])


def _is_feed_forward(role: Role) -> bool:
    return role.name.startswith("ffn")


def _leads_into(before: Role, after: Role) -> bool:
    """Whether `before` is the residual sum or the norm that opens the feed-forward part."""
    if before.op in _NORM_OPS:
        return after.op == "MUL" or _is_feed_forward(after)
    return before.op == "ADD" and after.op in _NORM_OPS


def _mixer_title(columns: tuple[Column, ...]) -> str:
    ops = {column.role.op for column in columns}
    attends = bool(ops & {"FLASH_ATTN_EXT", "SOFT_MAX"})
    recurs = bool(ops & _RECURRENT_OPS)
    if attends and recurs:
        return "attention, recurrent"
    return "recurrent" if recurs else "attention"
