"""One layer as a layered drawing: a rank a step of the data, a lane a path side by side.

Ranks are the longest way from the layer's input, looked at through views and through the cache
that one node writes and another reads. It depends on the graph only; alike layers share it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.table import PlanTable

INPUT = -1
"""The source of an edge that comes from another layer."""

_CACHE_WRITERS = frozenset({"SET_ROWS", "CPY"})


@dataclass(frozen=True, slots=True)
class Edge:
    """Data from one node of the layer to another, as indices into the layer's cells."""

    source: int
    target: int
    residual: bool
    """It passes by other nodes, so it is drawn below them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rank and lane of each computed node of a layer, in execution order. Lane 0 is the trunk."""

    ranks: tuple[int, ...]
    lanes: tuple[int, ...]
    edges: tuple[Edge, ...]

    @property
    def n_ranks(self) -> int:
        """Steps from left to right."""
        return max(self.ranks, default=-1) + 1

    @property
    def first_lane(self) -> int:
        """The topmost lane, 0 or less."""
        return min(self.lanes, default=0)

    @property
    def last_lane(self) -> int:
        """The lowest lane, 0 or more."""
        return max(self.lanes, default=0)


def block_of(plan: PlanTable, node_ids: list[int]) -> Block:
    """The drawing of the layer that consists of these computed nodes."""
    sources = _sources(plan, node_ids)
    ranks = _ranks(plan, node_ids, sources)
    lanes = _lanes(ranks, sources)
    occupied = {(rank, lane) for rank, lane in zip(ranks, lanes, strict=True)}
    edges = [
        Edge(source, target, _passes_nodes(source, target, ranks, lanes, occupied))
        for target, found in enumerate(sources)
        for source in found
    ]
    return Block(tuple(ranks), tuple(lanes), tuple(edges))


def _sources(plan: PlanTable, node_ids: list[int]) -> list[list[int]]:
    """For each node the nodes of the layer it needs, or INPUT; each once."""
    index_of = {node_id: i for i, node_id in enumerate(node_ids)}
    writers: dict[int, int] = {}
    result: list[list[int]] = []
    for node_id in node_ids:
        slot = plan.slot(node_id)
        found: dict[int, None] = {}
        for source in plan.sources(slot):
            root = _computed(plan, source, writers)
            if root is not None:
                found[index_of.get(root, INPUT)] = None
        target = int(plan.view_src[slot])
        if 0 <= target < plan.n_leafs:
            writers[target] = node_id
        result.append(list(found))
    return result


def _computed(plan: PlanTable, slot: int, writers: dict[int, int]) -> int | None:
    """The computed node a source stands for: through views, and to who wrote a cache."""
    while slot >= plan.n_leafs and plan.is_view_op[slot]:
        slot = int(plan.src[slot, 0])
    if slot >= plan.n_leafs:
        return slot - plan.n_leafs
    return writers.get(slot)


def _ranks(plan: PlanTable, node_ids: list[int], sources: list[list[int]]) -> list[int]:
    ranks = _longest_ways(sources, {})
    writes = [
        i for i, node_id in enumerate(node_ids) if plan.op[plan.slot(node_id)] in _CACHE_WRITERS
    ]
    for first, second in pairwise(writes):
        # Writers side by side stand one above the other, so that attention reads one column.
        if second == first + 1 and first not in sources[second]:
            rank = max(ranks[first], ranks[second])
            ranks = _longest_ways(sources, {first: rank, second: rank})
    return ranks


def _longest_ways(sources: list[list[int]], at_least: dict[int, int]) -> list[int]:
    ranks: list[int] = []
    for i, found in enumerate(sources):
        way = max((ranks[s] + 1 for s in found if s != INPUT), default=0)
        ranks.append(max(way, at_least.get(i, 0)))
    return ranks


def _lanes(ranks: list[int], sources: list[list[int]]) -> list[int]:
    """A fan spreads around the trunk, a chain keeps its lane, a join returns to the trunk."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for i, rank in enumerate(ranks):
        by_rank[rank].append(i)
    lanes = [0] * len(ranks)
    for rank in sorted(by_rank):
        members = by_rank[rank]
        wanted = {i: _wanted_lane(i, members, sources, lanes) for i in members}
        taken: set[int] = set()
        for i in sorted(members, key=wanted.__getitem__):
            lanes[i] = _nearest_free(wanted[i], taken)
            taken.add(lanes[i])
    return lanes


def _wanted_lane(i: int, members: list[int], sources: list[list[int]], lanes: list[int]) -> int:
    found = [s for s in sources[i] if s != INPUT]
    siblings = [m for m in members if sources[m] == sources[i]]
    if len(siblings) > 1:
        return siblings.index(i) - len(siblings) // 2
    if len(found) == 1:
        return lanes[found[0]]
    return 0 if len(members) == 1 or not found else min((lanes[s] for s in found), key=abs)


def _nearest_free(wanted: int, taken: set[int]) -> int:
    for step in range(len(taken) + 1):
        for lane in (wanted + step, wanted - step):
            if lane not in taken:
                return lane
    return wanted


def _passes_nodes(
    source: int,
    target: int,
    ranks: list[int],
    lanes: list[int],
    occupied: set[tuple[int, int]],
) -> bool:
    """Whether neither the source's lane nor the target's lane is free between the two."""
    first = -1 if source == INPUT else ranks[source]
    between = range(first + 1, ranks[target])
    ways = {lanes[target]} if source == INPUT else {lanes[source], lanes[target]}
    return all(any((rank, lane) in occupied for rank in between) for lane in ways)
