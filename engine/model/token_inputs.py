"""TokenInputs: writes the inputs of a batch of one token, with as little code as there can be.

Between two tokens the caches are full of weights: whatever runs there is fetched anew from memory,
and a call into numpy costs ten times what it does elsewhere. One token changes little: a handful
of whole numbers, and one cell of a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from engine.core.types import TensorType
from engine.model.batch_inputs import PlacedBatch
from engine.model.blocks.graph_context import InputKey, InputKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.backend.interface import Bytes, Place
    from engine.core.tensor import Tensor
    from engine.model.cells import CacheCells, Cells

_FORMATS: dict[TensorType, Literal["i", "q", "H", "I"]] = {
    TensorType.I32: "i",
    TensorType.I64: "q",
    TensorType.F16: "H",
    TensorType.F32: "I",
}
"""How the bytes of an element are seen; floating point as bits."""
_NUMBERS = {
    InputKind.TOKENS: "token",
    InputKind.LAYER_TOKENS: "token",
    InputKind.POSITIONS: "position",
    InputKind.OUT_IDS: "row",
}
"""Inputs of one number each, by what it is."""
_CELLS = (InputKind.K_IDXS, InputKind.V_IDXS)


class TokenInputs:
    """The inputs of one graph where the host sees them. `of` says whether it can be used."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[memoryview]] = {"token": [], "position": [], "row": []}
        self._cells: list[tuple[memoryview, int]] = []
        self._masks: list[_Mask] = []

    @classmethod
    def of(
        cls,
        inputs: Mapping[InputKey, Tensor],
        places: Mapping[InputKey, Place],
        parts: Sequence[CacheCells],
    ) -> TokenInputs | None:
        """None where an input needs more than numbers, or lies where the host cannot write."""
        found = cls()
        for key, tensor in inputs.items():
            if key.kind is InputKind.EMBEDDINGS:
                continue
            host = places[key].buffer.host
            if host is None or not host.flags.writeable or tensor.type not in _FORMATS:
                return None
            view = _seen(host, places[key].offset, tensor)
            if not found._add(key, tensor, view, parts):
                return None
        return found

    def _add(
        self, key: InputKey, tensor: Tensor, view: memoryview, parts: Sequence[CacheCells]
    ) -> bool:
        if key.kind is InputKind.KQ_MASK and tensor.n_elems == tensor.ne[0]:
            self._masks.append(_Mask(tensor, view, parts[key.part]))
        elif tensor.n_elems != 1:
            return False
        elif key.kind in _CELLS:
            self._cells.append((view, key.part))
        elif key.kind in _NUMBERS:
            self._numbers[_NUMBERS[key.kind]].append(view)
        else:
            return False
        return True

    def write(self, token: int, position: int, cells: Sequence[Cells]) -> None:
        """Write every input; `cells` has the one that was taken in each part of the cache."""
        for view in self._numbers["token"]:
            view[0] = token
        for view in self._numbers["position"]:
            view[0] = position
        for view in self._numbers["row"]:
            view[0] = 0
        for view, part in self._cells:
            view[0] = cells[part][0]
        for mask in self._masks:
            mask.write(position)


class _Mask:
    """The mask of one token, kept from token to token: the next one sees one cell more."""

    def __init__(self, tensor: Tensor, target: memoryview, cells: CacheCells) -> None:
        self._tensor = tensor
        self._target = target
        self._cells = cells
        self._row = memoryview(bytearray(target.nbytes)).cast(_FORMATS[tensor.type])
        self._change = -1

    def write(self, position: int) -> None:
        """Write the row of a token that has just taken its cell."""
        cells, row = self._cells, self._row
        if cells.appended is not None and cells.n_changes == self._change + 1:
            row[cells.appended] = 0
        else:
            batch = PlacedBatch((0,), position, (cells,), ())
            values = batch.mask(0, self._tensor)
            row.cast("B")[:] = memoryview(values.tobytes())
        self._change = cells.n_changes
        self._target[:] = row


def _seen(host: Bytes, offset: int, tensor: Tensor) -> memoryview:
    """The elements of a tensor, to be written one by one."""
    raw = host[offset : offset + tensor.n_bytes].data
    return raw.cast(_FORMATS[tensor.type])
