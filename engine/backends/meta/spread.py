"""A split's nodes -> what each member computes, and what members hand to one another. Pure.

Each tensor of the split is whole on every member, on one, or shared along an axis (`Shard`). Nodes
are taken in order. Where members share a node each gets a node of its own, with parts as sources.
Where a product gives each member a part of every sum, the sums are exchanged and added in the order
of the members, so that all get the same bits. A result that somebody outside of the split reads,
and one that a node needs whole, is gathered: everybody copies the parts of all to their places.

Parts lie at the start of the memory that was planned for the whole result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.backends.meta.decide import Decision, decide
from engine.backends.meta.views import member_view, slice_of, view_shard
from engine.core.ops import EMPTY_OPS, Op
from engine.core.shards import MIRRORED, Shard
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

SCRATCH_ALIGNMENT = 256
"""Bytes; at least the alignment of any device's memory."""

COPIED_TYPES = (TensorType.F32, TensorType.F16)
"""Types that every device's CPY takes."""


class Move(NamedTuple):
    """Bytes of a tensor of one member that another one gets."""

    source: int
    target: int
    sent: Tensor
    received: Tensor
    n_bytes: int


class Exchange(NamedTuple):
    """What members hand to one another once all of them have come so far."""

    moves: tuple[Move, ...]


class Stage(NamedTuple):
    """Nodes that each member computes by itself."""

    nodes: tuple[tuple[Tensor, ...], ...]


Step = Exchange | Stage


@dataclass(frozen=True, slots=True)
class Spread:
    """The steps of a split, and where their tensors are.

    `home_of` gives for a part the tensor of the split in whose memory it lies; `scratch` the offset
    of a tensor in each member's scratch, of `scratch_bytes`. Every other tensor is one of the split
    and lies where that does.
    """

    steps: tuple[Step, ...]
    home_of: Mapping[Tensor, Tensor]
    scratch: Mapping[Tensor, int]
    scratch_bytes: int


def spread(
    nodes: Sequence[Tensor],
    n_members: int,
    shards: Mapping[Tensor, Shard],
    *,
    read_outside: Collection[Tensor],
    are_one: Callable[[Tensor, Tensor], bool] = lambda _node, _source: False,
) -> Spread:
    """The steps that compute `nodes`; `shards` are those of weights and caches that are divided.

    `are_one` says whether a node's result takes the memory of a source (optional: never).

    Raises: PlacementError for a node that needs a weight or cache whole, which no member has.
    """
    return _Spreader(tuple(nodes), n_members, shards, frozenset(read_outside), are_one).run()


@dataclass(slots=True)
class _Spreader:
    nodes: tuple[Tensor, ...]
    n_members: int
    shards: Mapping[Tensor, Shard]
    outside: frozenset[Tensor]
    are_one: Callable[[Tensor, Tensor], bool]
    states: dict[Tensor, Shard] = field(default_factory=dict)
    """How results of the split are shared; one that is not there is whole on every member."""
    parts: dict[Tensor, list[Tensor | None]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    stage: list[list[Tensor]] = field(default_factory=list)
    home_of: dict[Tensor, Tensor] = field(default_factory=dict)
    scratch: dict[Tensor, int] = field(default_factory=dict)
    scratch_bytes: int = 0

    def run(self) -> Spread:
        self.stage = [[] for _ in range(self.n_members)]
        wanted_whole = self._wanted_whole()
        for node in self.nodes:
            if node.op in EMPTY_OPS or node.n_elems == 0:
                continue
            self._add(node)
            if node in wanted_whole and not self._state(node).is_mirrored:
                self._gather(node)
        self._end_stage()
        return Spread(tuple(self.steps), self.home_of, self.scratch, self.scratch_bytes)

    def _wanted_whole(self) -> set[Tensor]:
        """Results that are read outside, or by nobody here, which comes to the same."""
        read = {source.base for node in self.nodes for source in node.src}
        return {
            node.base
            for node in self.nodes
            if node in self.outside or node.flags & Flag.OUTPUT or node.base not in read
        } - set(self.shards)

    # How tensors are shared.

    def _state(self, base: Tensor) -> Shard:
        return self.shards.get(base) or self.states.get(base, MIRRORED)

    def _source_state(self, source: Tensor) -> Shard | None:
        base = source.base
        state = self._state(base)
        return state if base is source else view_shard(base, state, source)

    def _add(self, node: Tensor) -> None:
        """Append a node, after what it takes to compute it."""
        decision = self._decision(node)
        if decision is None:
            for source in node.src:
                self._make_whole(source.base)
            decision = self._decision(node)
        if decision is None:
            raise self._refusal(node)
        if decision.adds_up:
            self._add_up(node, decision)
        elif decision.out.is_mirrored:
            for nodes in self.stage:
                nodes.append(node)
        else:
            self._share(node, decision)

    def _decision(self, node: Tensor) -> Decision | None:
        """How members share a node as its sources are now, if they can."""
        decision = decide(node, tuple([self._source_state(source) for source in node.src]))
        if decision is not None and self._reads_while_writing(node, decision):
            return None
        return decision

    def _reads_while_writing(self, node: Tensor, decision: Decision) -> bool:
        """Whether members would write their part over another part of a source they have whole."""
        if decision.adds_up or decision.out.is_mirrored:
            return False
        return any(
            not need.is_mirrored
            and self._state(source.base).is_mirrored
            and self.are_one(node, source.base)
            for source, need in zip(node.src, decision.needs, strict=True)
        )

    def _make_whole(self, base: Tensor) -> None:
        """Give every member all of a result; weights and caches stay as they are."""
        if base not in self.shards and not self._state(base).is_mirrored:
            self._gather(base)

    def _refusal(self, node: Tensor) -> PlacementError:
        divided = next(base for source in node.src if (base := source.base) in self.shards)
        return PlacementError(
            f"-sm tensor cannot share {node.op.value} {node.name} of this model.",
            f"It reads all of {divided.name}, of shape {list(divided.ne)}, of which each device "
            "has a part.",
            "Choose -sm layer.",
        )

    # Members' own nodes.

    def _share(self, node: Tensor, decision: Decision) -> None:
        members = range(self.n_members)
        own = [self._own_node(node, decision, decision.out, member) for member in members]
        for member, part in enumerate(own):
            if part is not None:
                self.stage[member].append(part)
        if node.view_src is None:
            self.states[node], self.parts[node] = decision.out, own

    def _own_node(
        self, node: Tensor, decision: Decision, result: Shard, member: int
    ) -> Tensor | None:
        """A member's part of a node, shaped as its part of `result`; None where it has no work."""
        if not decision.out.is_on(member):
            return None
        needed = zip(node.src, decision.needs, strict=True)
        sources = tuple([self._part(source, need, member) for source, need in needed])
        shape = result.ne_on(node.ne, member)
        if sources == node.src and shape == node.ne:
            return node
        target = None if node.view_src is None else self._part(node, decision.out, member)
        own = Tensor(
            node.type,
            shape,
            nb=None if target is None else target.nb,
            op=node.op,
            params=node.params,
            src=sources,
            view_src=None if target is None else target.view_src or target,
            view_offs=0 if target is None else target.view_offs,
            name=node.name,
            flags=node.flags,
        )
        if target is None:
            self.home_of[own] = node
        return own

    def _part(self, tensor: Tensor, need: Shard, member: int) -> Tensor:
        """What a member has of a source, which is the whole of it or the part that is needed."""
        base = tensor.base
        state = self._state(base)
        if state.is_mirrored:
            part = slice_of(tensor, need, member)
        elif state.owner is not None:
            part = tensor
        else:
            part = self._own_part(base, member)
            if part is not None and base is not tensor:
                part = member_view(base, state, tensor, member, part)
        assert part is not None, (tensor, need, member)
        return part

    def _own_part(self, base: Tensor, member: int) -> Tensor | None:
        """A member's part of something that is shared."""
        if base not in self.parts:
            shard = self._state(base)
            self.parts[base] = [
                self._leaf(base, shard, i) if shard.is_on(i) else None
                for i in range(self.n_members)
            ]
        return self.parts[base][member]

    def _leaf(self, base: Tensor, shard: Shard, member: int) -> Tensor:
        part = Tensor(base.type, shard.ne_on(base.ne, member), name=base.name, buffer=base.buffer)
        self.home_of[part] = base
        return part

    # What members hand over.

    def _add_up(self, node: Tensor, decision: Decision) -> None:
        """Sums of which each member computes a part, then the sum of these on every member."""
        adders = [member for member in range(self.n_members) if decision.out.is_on(member)]
        own = {member: self._own_node(node, decision, MIRRORED, member) for member in adders}
        for member, part in own.items():
            assert part is not None, node
            self.stage[member].append(part)
        self._end_stage()
        if len(adders) == 1:
            self._hand_round(node, adders[0])
            return
        received = self._regions([node] * len(adders), node.ne)
        moves = []
        for target in range(self.n_members):
            for i_adder, source in enumerate(adders):
                sent = own[source]
                if source != target and sent is not None:
                    moves.append(Move(source, target, sent, received[i_adder], node.n_bytes))
        self.steps.append(Exchange(tuple(moves)))
        for target in range(self.n_members):
            terms = [
                own[source] if source == target else received[i_adder]
                for i_adder, source in enumerate(adders)
            ]
            self._sum(node, [term for term in terms if term is not None], target)

    def _sum(self, node: Tensor, terms: list[Tensor], member: int) -> None:
        """Add the terms in order; a member's own one lies where the result is to be."""
        total = terms[0]
        for i_term, term in enumerate(terms[1:], 1):
            own_is_due = any(later in self.home_of for later in terms[i_term + 1 :])
            added = Tensor(
                node.type, node.ne, op=Op.ADD, src=(total, term), name=node.name,
                flags=Flag.COMPUTE,
            )  # fmt: skip
            if own_is_due:
                self.scratch[added] = self.scratch[terms[0]]
            else:
                self.home_of[added] = node
            self.stage[member].append(added)
            total = added

    def _hand_round(self, node: Tensor, owner: int) -> None:
        """Give every other member what one has whole, in its own place."""
        moves = [
            Move(owner, target, node, node, node.n_bytes)
            for target in range(self.n_members)
            if target != owner
        ]
        self.steps.append(Exchange(tuple(moves)))

    def _gather(self, base: Tensor) -> None:
        """Give every member all parts of a result, and put them in their places."""
        shard = self.states.pop(base)
        assert base.type in COPIED_TYPES, base
        if shard.owner is not None:
            self._end_stage()
            self._hand_round(base, shard.owner)
            return
        parts = self.parts.pop(base)
        held = [(member, part) for member, part in enumerate(parts) if part is not None]
        regions = self._regions([part for _, part in held], None)
        for (member, part), region in zip(held, regions, strict=True):
            # Where a part lies another one is going to be.
            self.stage[member].append(_copy(part, region))
        self._end_stage()
        self.steps.append(
            Exchange(
                tuple(
                    Move(source, target, part, region, part.n_bytes)
                    for target in range(self.n_members)
                    for (source, part), region in zip(held, regions, strict=True)
                    if source != target
                )
            )
        )
        for nodes in self.stage:
            for (source, _), region in zip(held, regions, strict=True):
                window = slice_of(base, shard, source)
                assert window is not None, base
                nodes.append(_copy(region, window))

    def _regions(
        self, parts: Sequence[Tensor], ne: tuple[int, int, int, int] | None
    ) -> list[Tensor]:
        """Places in every member's scratch for so many parts, of their shape or of `ne`."""
        offset, regions = 0, []
        for part in parts:
            region = Tensor(part.type, part.ne if ne is None else ne, name=part.name)
            self.scratch[region] = offset
            offset += -(-region.n_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
            regions.append(region)
        self.scratch_bytes = max(self.scratch_bytes, offset)
        return regions

    def _end_stage(self) -> None:
        if any(self.stage):
            self.steps.append(Stage(tuple(tuple(nodes) for nodes in self.stage)))
            self.stage = [[] for _ in range(self.n_members)]


def _copy(source: Tensor, target: Tensor) -> Tensor:
    """The elements of a tensor written to another place of the same shape."""
    return Tensor(
        target.type, target.ne, nb=target.nb, op=Op.CPY, src=(source, target),
        view_src=target.view_src or target, view_offs=target.view_offs, name=source.name,
        flags=Flag.COMPUTE,
    )  # fmt: skip
