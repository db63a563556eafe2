"""What the host writes before a batch: the value of every input. Source: ARCH.md 1.4."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.hparams_parts import Pooling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.core.tensor import Tensor
    from engine.model.cells import CacheCells, Cells, Integers
    from engine.model.hparams_parts import Temperature

Values = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBatch:
    """Tokens that follow one another, and the cells they took in each part of the cache."""

    tokens: Sequence[int]
    first: int
    """Position of the first token."""
    parts: tuple[CacheCells, ...]
    cells: tuple[Cells, ...]
    temperature: Temperature | None = None
    pooling: Pooling | None = None
    """Where embeddings are wanted: how those of the tokens become one."""
    hides_later: bool = False
    """Whether a token of an encoder does not see those after it."""

    @property
    def positions(self) -> Integers:
        """The position of each token."""
        return np.arange(self.first, self.first + len(self.tokens))

    def values(self, inputs: Mapping[InputKey, Tensor]) -> dict[InputKey, Values]:
        """The value of each input, flat or in numpy's order of dimensions (ne1, ne0)."""
        return {
            key: _FILL[key.kind](self, key.part, tensor)
            for key, tensor in inputs.items()
            if key.kind is not InputKind.EMBEDDINGS
        }

    def mask(self, part: int, tensor: Tensor) -> Values:
        """[n_tokens, n_kv]: 0 where a token sees a cell of a part, else -inf."""
        hidden = self.parts[part].hidden(self.first, len(self.tokens), tensor.ne[0])
        return _as_mask(hidden, tensor)


@functools.cache
def hadamard(size: int) -> npt.NDArray[np.float32]:
    """The orthonormal Walsh-Hadamard matrix of a size that is a power of two."""
    matrix = np.full((1, 1), 1.0 / np.sqrt(np.float32(size)), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix.flags.writeable = False
    return matrix


def _tokens(batch: PlacedBatch, _: int, __: Tensor) -> Values:
    return np.asarray(batch.tokens, np.int32)


def _positions(batch: PlacedBatch, _: int, tensor: Tensor) -> Values:
    """Of tokens; where a rotation takes four of each, as blocks: three alike, then zeros."""
    positions = batch.positions.astype(np.int32)
    if tensor.n_elems == positions.size:
        return positions
    return np.concatenate([positions, positions, positions, np.zeros_like(positions)])


def _temperature(batch: PlacedBatch, _: int, tensor: Tensor) -> Values:
    if batch.temperature is None:
        return np.ones(tensor.n_elems, np.float32)
    return batch.temperature.factors(batch.positions)


def _cells(batch: PlacedBatch, part: int) -> Integers:
    cells = batch.cells[part]
    return np.arange(cells.start, cells.stop) if isinstance(cells, range) else cells


def _k_idxs(batch: PlacedBatch, part: int, _: Tensor) -> Values:
    return _cells(batch, part)


def _v_idxs(batch: PlacedBatch, part: int, tensor: Tensor) -> Values:
    """Cells; where V is transposed, the place of each element of each row."""
    cells = _cells(batch, part)
    n_embd = tensor.n_elems // cells.size
    if n_embd == 1:
        return cells
    channels = np.arange(n_embd, dtype=np.int64) * batch.parts[part].part.n_cells
    return (channels[None, :] + cells[:, None]).reshape(-1)


def _kq_mask(batch: PlacedBatch, part: int, tensor: Tensor) -> Values:
    return batch.mask(part, tensor)


def _as_mask(hidden: npt.NDArray[np.bool_], tensor: Tensor) -> Values:
    mask_type = np.float16 if tensor.type is TensorType.F16 else np.float32
    return np.where(hidden, mask_type(-np.inf), mask_type(0.0))


def _rotation(_: PlacedBatch, __: int, tensor: Tensor) -> Values:
    return hadamard(tensor.ne[0])


def _state_rows(_: PlacedBatch, __: int, tensor: Tensor) -> Values:
    """Each row is its own source: one that begins is set to zero before it is picked."""
    return np.arange(tensor.n_elems, dtype=np.int32)


def _out_ids(batch: PlacedBatch, _: int, tensor: Tensor) -> Values:
    """As many of the last rows as are wanted."""
    n_tokens = len(batch.tokens)
    return np.arange(n_tokens - tensor.n_elems, n_tokens, dtype=np.int32)


def _self_mask(batch: PlacedBatch, _: int, tensor: Tensor) -> Values:
    positions = batch.positions
    later = positions[None, :] > positions[:, None]
    return _as_mask(later & batch.hides_later, tensor)


def _pooled_row(batch: PlacedBatch, _: int, __: Tensor) -> Values:
    """The first token of the one text, or its last."""
    row = len(batch.tokens) - 1 if batch.pooling is Pooling.LAST else 0
    return np.array([row], np.int32)


def _shares(batch: PlacedBatch, _: int, __: Tensor) -> Values:
    """Every token of the one text counts the same."""
    n_tokens = len(batch.tokens)
    return np.full((1, n_tokens), 1.0 / n_tokens, np.float32)


_FILL: dict[InputKind, Callable[[PlacedBatch, int, Tensor], Values]] = {
    InputKind.TOKENS: _tokens,
    InputKind.LAYER_TOKENS: _tokens,
    InputKind.POSITIONS: _positions,
    InputKind.K_IDXS: _k_idxs,
    InputKind.V_IDXS: _v_idxs,
    InputKind.KQ_MASK: _kq_mask,
    InputKind.K_ROTATION: _rotation,
    InputKind.V_ROTATION: _rotation,
    InputKind.TEMPERATURE: _temperature,
    InputKind.STATE_ROWS: _state_rows,
    InputKind.SELF_MASK: _self_mask,
    InputKind.CLS: _pooled_row,
    InputKind.MEAN: _shares,
    InputKind.OUT_IDS: _out_ids,
}
