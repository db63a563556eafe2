"""Nodes of a split with products in split memory -> what each device does. Pure.

    main   ..calls.. | send x |  own rows  ........  | take rows | ..calls..
    mate                      | wait x | its rows  |

The main device's queue makes all copies, so that nothing of its memory is used from two queues at
once. A mate waits for activations only: products that share them follow one another on it, each
with memory of its own for its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.backend.interface import Place
from engine.backends.opencl.row_buffer import RowBuffer, Rows
from engine.backends.opencl.split import encode_each
from engine.core.devices import BufferUsage
from engine.core.ops import EMPTY_OPS, Op
from engine.core.rows import SPLIT, multiplies_rows, rows_of
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from engine.backends.opencl.arguments import KernelCall, PlaceOf
    from engine.backends.opencl.device import OpenClDevice
    from engine.backends.opencl.split import Encoded
    from engine.backends.opencl.tuning import Tuning
    from engine.core.tensor import Shape


class Mate(Protocol):
    """A device that computes rows for another, and its memory for that."""

    @property
    def tuning(self) -> Tuning:
        """How it is driven."""
        ...

    def scratch_place(self, n_bytes: int) -> Place:
        """Room for rounded activations."""
        ...

    def input_place(self, n_bytes: int) -> Place:
        """Room for activations."""
        ...

    def result_place(self, number: int, n_bytes: int) -> Place:
        """Room for the result of the product with this number among those of one input."""
        ...


class Compute(NamedTuple):
    """Launches on the main device (`mate` None) or a mate."""

    mate: Mate | None
    calls: tuple[KernelCall, ...]


class Send(NamedTuple):
    """Activations to a mate."""

    mate: Mate
    source: Place
    target: Place
    n_bytes: int


class Take(NamedTuple):
    """A mate's rows of a result: of each of `n_columns` columns, `n_bytes` without gaps.

    Columns are `pitch` bytes apart in the result, and follow one another at the mate.
    """

    mate: Mate
    source: Place
    target: Place
    n_bytes: int
    n_columns: int
    pitch: int


Step = Compute | Send | Take


def rows_behind(node: Tensor, place_of: PlaceOf) -> tuple[Rows, ...]:
    """Which device computes which rows of a product in split memory; empty for other nodes."""
    if node.op is not Op.MUL_MAT or node.n_elems == 0 or node.src[0].view_src is not None:
        return ()
    place = place_of(node.src[0])
    return place.buffer.rows_at(place.offset) if isinstance(place.buffer, RowBuffer) else ()


class _MateWork:
    """What a mate computes, in order, and the activations that it has."""

    def __init__(self, mate: Mate) -> None:
        self.mate = mate
        self.places: dict[Tensor, Place] = {}
        self.parts: list[Tensor] = []
        self.sends: list[Send | None] = []
        self._held: Tensor | None = None
        self._copy: Tensor | None = None
        self._n_results = 0

    def add(self, node: Tensor, rows: Rows, place_of: PlaceOf) -> None:
        """Its rows of a product, whose activations are sent unless it has them."""
        x = node.src[1]
        send = None
        if self._held is not x or self._copy is None:
            self._held, self._copy, self._n_results = x, Tensor(x.type, x.ne, nb=x.nb), 0
            place = self.mate.input_place(x.n_bytes)
            self.places[self._copy] = place
            send = Send(self.mate, place_of(x), place, x.n_bytes)
        weight = _rows_of_weight(node.src[0], rows)
        part = _part(node, (weight, self._copy))
        self.places[weight] = rows.place
        self.places[part] = self.mate.result_place(self._n_results, part.n_bytes)
        self._n_results += 1
        self.parts.append(part)
        self.sends.append(send)

    def forget(self, node: Tensor) -> None:
        """What `node` is written over is not what the mate has."""
        if self._held is not None and self._held.base is node.base:
            self._held = None

    def encode(self) -> Iterator[Encoded]:
        """Launches, a product at a time."""
        return encode_each(
            self.parts, self.places.__getitem__, self.mate.tuning, self.mate.scratch_place
        )


class RowPlan:
    """The steps of a split. Products in split memory are divided: `main` computes its own rows."""

    def __init__(
        self,
        main: OpenClDevice,
        nodes: Sequence[Tensor],
        place_of: PlaceOf,
        mate_of: Callable[[OpenClDevice], Mate],
    ) -> None:
        self._main = main
        self._place_of = place_of
        self._own_places: dict[Tensor, Place] = {}
        self._products: dict[Tensor, tuple[Tensor, tuple[Rows, ...]]] = {}
        self._work: dict[OpenClDevice, _MateWork] = {}
        working = [node for node in nodes if node.op not in EMPTY_OPS and node.n_elems > 0]
        self._nodes = [self._divided(node, mate_of) for node in working]

    def steps(self, tuning: Tuning, scratch: Callable[[int], Place]) -> Iterator[Step]:
        """What happens, in the order in which it is queued."""
        mates = {device: work.encode() for device, work in self._work.items()}
        sends = {device: iter(work.sends) for device, work in self._work.items()}
        calls: list[KernelCall] = []
        for encoded in encode_each(self._nodes, self._place, tuning, scratch):
            product = self._products.get(encoded.nodes[0])
            if product is None:
                calls += encoded.calls
                continue
            if calls:
                yield Compute(None, tuple(calls))
                calls = []
            node, rows = product
            others = [held for held in rows if held.device is not self._main]
            yield from (send for held in others if (send := next(sends[held.device])) is not None)
            takes: list[Take] = []
            for held in others:
                part = next(mates[held.device])
                work = self._work[held.device]
                yield Compute(work.mate, part.calls)
                takes.append(self._take(work.mate, node, held, work.places[part.nodes[0]]))
            yield Compute(None, encoded.calls)
            yield from takes
        if calls:
            yield Compute(None, tuple(calls))

    def _divided(self, node: Tensor, mate_of: Callable[[OpenClDevice], Mate]) -> Tensor:
        """What the main device computes for `node`: the node itself, or its rows of a product."""
        rows = rows_behind(node, self._place_of)
        computed = node
        for held in rows:
            if held.device is self._main:
                computed = self._own_part(node, held)
                self._products[computed] = (node, rows)
                continue
            if held.device not in self._work:
                self._work[held.device] = _MateWork(mate_of(held.device))
            self._work[held.device].add(node, held, self._place_of)
        assert not rows or computed is not node, (node, "has no rows on", self._main.name)
        for work in self._work.values():
            work.forget(node)
        return computed

    def _own_part(self, node: Tensor, rows: Rows) -> Tensor:
        weight = _rows_of_weight(node.src[0], rows)
        part = _part(node, (weight, node.src[1]), nb=node.nb)
        self._own_places[weight] = rows.place
        self._own_places[part] = self._row_place(node, rows)
        return part

    def _row_place(self, node: Tensor, rows: Rows) -> Place:
        """Where the first of some rows is in the result."""
        place = self._place_of(node)
        return Place(place.buffer, place.offset + rows.start * node.nb[0])

    def _take(self, mate: Mate, node: Tensor, rows: Rows, source: Place) -> Take:
        n_bytes = (rows.stop - rows.start) * node.nb[0]
        return Take(mate, source, self._row_place(node, rows), n_bytes, node.n_rows, node.nb[1])

    def _place(self, tensor: Tensor) -> Place:
        own = self._own_places.get(tensor)
        return self._place_of(tensor) if own is None else own


def reserve_for_mates(
    main: OpenClDevice, nodes: Iterable[Tensor], mate_of: Callable[[OpenClDevice], Mate]
) -> None:
    """Have mates get memory for the rows of those products among `nodes` that `main` shares out."""
    own = f"{main.name}{SPLIT}"
    products = [
        node
        for node in nodes
        if multiplies_rows(node, main.name)
        and node.src[0].home is not None
        and node.src[0].home.buft.name == own
    ]
    if products:
        RowPlan(main, products, _RowsOnPaper(main, products).place_of, mate_of)


class _RowsOnPaper:
    """Places of weights in split memory that is not there yet; every other tensor is anywhere."""

    def __init__(self, main: OpenClDevice, products: Sequence[Tensor]) -> None:
        weights = dict.fromkeys(node.src[0] for node in products)
        self._anywhere = Place(RowBuffer(main.buft_facts, BufferUsage.ANY, ()), 0)
        self._devices = main.family
        self._places = {weight: self._place(weight) for weight in weights}

    def place_of(self, tensor: Tensor) -> Place:
        """Where a tensor would be."""
        return self._places.get(tensor, self._anywhere)

    def _place(self, weight: Tensor) -> Place:
        assert weight.home is not None, weight
        facts = weight.home.buft
        assert facts.row_shares is not None, weight
        rows = [
            Rows(self._devices[held.device], held.start, held.stop, self._anywhere)
            for held in rows_of(weight.ne[1], facts.row_shares)
        ]
        return RowBuffer(facts, BufferUsage.WEIGHTS, ()).add(weight, tuple(rows))


def _rows_of_weight(weight: Tensor, rows: Rows) -> Tensor:
    return Tensor(weight.type, (weight.ne[0], rows.stop - rows.start, 1, 1))


def _part(node: Tensor, src: tuple[Tensor, Tensor], nb: Shape | None = None) -> Tensor:
    """A product with some rows of the weight; by default its result has no gaps."""
    assert node.is_contiguous, node
    ne = (src[0].ne[1], *node.ne[1:])
    return Tensor(node.type, ne, nb=nb, op=node.op, params=node.params, src=src)
