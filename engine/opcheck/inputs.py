"""The bytes of a case's sources: any numbers, always the same for the same case.

Indices are valid, masks leave each row something to see, and numbers stay where the operation is
well conditioned, so that two right kernels agree.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.ops import MULTI_ROPES, Op, RopeParams
from engine.core.quants import WRITABLE, quantize
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.opcheck.cases import Case, Operand

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Generator = np.random.Generator

DTYPES: dict[TensorType, type[np.generic]] = {
    TensorType.I8: np.int8,
    TensorType.I16: np.int16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
    TensorType.F64: np.float64,
}
"""Types that are no weights, as numpy has them."""

INTEGERS = frozenset({TensorType.I8, TensorType.I16, TensorType.I32, TensorType.I64})

FARTHEST = 512
"""Positions stay below: farther ones turn the rounding of an angle into an error of its own."""


def source_bytes(case: Case) -> tuple[Bytes, ...]:
    """The memory of each source."""
    seed = zlib.crc32(repr(case).encode())
    return tuple(
        _memory(case, i, np.random.default_rng((seed, i))) for i in range(len(case.sources))
    )


def _memory(case: Case, i_source: int, rng: Generator) -> Bytes:
    operand = case.sources[i_source]
    make = _SPECIAL.get((case.op, i_source))
    values = None if make is None else make(case, operand, rng)
    if values is not None:
        return _written(operand, values)
    if operand.type in INTEGERS:
        numbers = rng.integers(0, 100, operand.memory_elems).astype(DTYPES[operand.type])
        return numbers.view(np.uint8)
    if operand.type not in WRITABLE:
        return random_blocks(operand.type, operand.memory_elems, rng)
    low, high = _RANGES.get((case.op, i_source), (-1.0, 1.0))
    floats = rng.random(operand.memory_elems, np.float32)
    return quantize(operand.type, np.float32(low) + np.float32(high - low) * floats)


def _written(operand: Operand, values: Array) -> Bytes:
    """Memory with these values, numpy's order, in the window; zeros where it has gaps."""
    size = operand.type.block_bytes
    memory = np.zeros(operand.memory_elems * size, np.uint8)
    if operand.type in DTYPES:
        raw = np.ascontiguousarray(values, DTYPES[operand.type]).view(np.uint8)
    else:
        raw = quantize(operand.type, np.ascontiguousarray(values, np.float32))
    window(operand, memory)[...] = raw.reshape(*operand.ne[:0:-1], -1, size)
    return memory


def window(operand: Operand, memory: Bytes) -> Bytes:
    """The operand's blocks (ne3, ne2, ne1, blocks of a row, bytes of a block), shared."""
    nb0, nb1, nb2, nb3 = operand.nb
    ne0, ne1, ne2, ne3 = operand.ne
    shape = (ne3, ne2, ne1, ne0 // operand.type.block_elems, operand.type.block_bytes)
    return np.lib.stride_tricks.as_strided(memory[operand.offset :], shape, (nb3, nb2, nb1, nb0, 1))


_HALFS_AT = {
    TensorType.Q2_K: (80, 82), TensorType.Q3_K: (108,), TensorType.Q4_1: (0, 2),
    TensorType.Q5_1: (0, 2), TensorType.Q4_K: (0, 2), TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,), TensorType.TQ1_0: (52,), TensorType.TQ2_0: (64,),
}  # fmt: skip
"""Where the f16 scales of a block are; one in front where nothing is said."""


def random_blocks(kind: TensorType, n_elems: int, rng: Generator) -> Bytes:
    """Blocks of a quantised type: random bits, with scales that are ordinary numbers."""
    n_blocks = n_elems // kind.block_elems
    blocks = rng.integers(0, 256, (n_blocks, kind.block_bytes), dtype=np.uint8)
    scales = rng.uniform(0.005, 0.02, n_blocks).astype(np.float16).view(np.uint16)
    if kind is TensorType.MXFP4:
        blocks[:, 0] = rng.integers(118, 128, n_blocks)
    elif kind is TensorType.NVFP4:
        blocks[:, :4] = rng.integers(16, 40, (n_blocks, 4))
    elif kind is TensorType.IQ1_M:
        for i in range(4):
            nibble = scales >> np.uint16(4 * i) & np.uint16(15)
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | nibble << 4
    else:
        for at in _HALFS_AT.get(kind, (0,)):
            blocks[:, at : at + 2] = scales[:, np.newaxis].view(np.uint8)
    return blocks.reshape(-1)


# Numbers that have to be something: (case, source, generator) -> values in numpy's order.


def _shape(operand: Operand) -> tuple[int, ...]:
    return operand.ne[::-1]


def _row_numbers(case: Case, operand: Operand, rng: Generator) -> Array:
    """Rows to read; any, again and again."""
    return rng.integers(0, case.sources[0].ne[1], _shape(operand))


def _own_rows(case: Case, operand: Operand, rng: Generator) -> Array:
    """Rows to write: each once, since the order of writing is nobody's promise."""
    return _distinct(case.result.ne[1], operand, rng)


def _state_rows(case: Case, operand: Operand, rng: Generator) -> Array:
    return _distinct(case.sources[0].ne[3], operand, rng)


def _distinct(n: int, operand: Operand, rng: Generator) -> Array:
    n_rows = math.prod(operand.ne[1:])
    rows = [rng.permutation(n)[: operand.ne[0]] for _ in range(n_rows)]
    return np.array(rows).reshape(_shape(operand))


def _experts(case: Case, operand: Operand, rng: Generator) -> Array:
    """Experts a token: different ones of a token, the same ones of many, and some of none."""
    n_experts = case.sources[0].ne[2 if case.op is Op.MUL_MAT_ID else 1]
    n_used = operand.ne[0]
    pool = np.arange(n_experts - 1, -1, -2)
    if len(pool) < n_used:
        pool = np.arange(n_experts)
    rows = [rng.permutation(pool)[:n_used] for _ in range(math.prod(operand.ne[1:]))]
    return np.array(rows).reshape(_shape(operand))


def _positions(case: Case, operand: Operand, rng: Generator) -> Array:
    params = case.params
    assert isinstance(params, RopeParams), params
    n_tokens = case.sources[0].ne[2]
    n_kinds = 4 if params.mode in MULTI_ROPES else 1
    last = min(FARTHEST, params.n_ctx_orig or FARTHEST)
    return rng.integers(0, last, (n_kinds, n_tokens)).reshape(_shape(operand))


def _mask(case: Case, operand: Operand, rng: Generator) -> Array:
    """What is added to scores: three of ten are -inf, never the first of a row."""
    del case
    values = -rng.random(_shape(operand))
    values[rng.random(values.shape) < 0.3] = -np.inf
    values[..., 0] = -0.25
    return values


def _wide(case: Case, operand: Operand, rng: Generator) -> Array | None:
    """Mostly small numbers, and a few that a function must not overflow at."""
    if not operand.is_whole:
        return None
    del case
    values = rng.uniform(-8.0, 8.0, _shape(operand))
    values.reshape(-1)[::97] *= 12.0
    return values


def _all_different(case: Case, operand: Operand, rng: Generator) -> Array:
    """Rows that can be sorted in one way only."""
    del case
    rows = [rng.permutation(operand.ne[0]) for _ in range(math.prod(operand.ne[1:]))]
    return np.array(rows, np.float32).reshape(_shape(operand)) - operand.ne[0] / 3


def _short_vectors(case: Case, operand: Operand, rng: Generator) -> Array:
    """Heads of about unit length, as the model's norm makes them."""
    del case
    return rng.normal(0.0, operand.ne[0] ** -0.5, _shape(operand))


_SPECIAL: dict[tuple[Op, int], Callable[[Case, Operand, Generator], Array | None]] = {
    (Op.GET_ROWS, 1): _row_numbers,
    (Op.SET_ROWS, 1): _own_rows,
    (Op.SSM_SCAN, 6): _state_rows,
    (Op.MUL_MAT_ID, 2): _experts,
    (Op.ADD_ID, 2): _experts,
    (Op.ROPE, 1): _positions,
    (Op.SOFT_MAX, 1): _mask,
    (Op.FLASH_ATTN_EXT, 3): _mask,
    (Op.UNARY, 0): _wide,
    (Op.GLU, 0): _wide,
    (Op.ARGSORT, 0): _all_different,
    (Op.GATED_DELTA_NET, 0): _short_vectors,
    (Op.GATED_DELTA_NET, 1): _short_vectors,
}

_RANGES: dict[tuple[Op, int], tuple[float, float]] = {
    (Op.DIV, 1): (0.5, 1.5),
    (Op.NORM, 0): (-3.0, 4.0),
    (Op.RMS_NORM, 0): (-3.0, 4.0),
    (Op.SOFT_MAX, 0): (-6.0, 6.0),
    (Op.ROPE, 2): (0.9, 1.1),
    (Op.SSM_SCAN, 3): (-1.0, -0.5),
    (Op.GATED_DELTA_NET, 3): (-2.0, -1e-3),
    (Op.GATED_DELTA_NET, 4): (0.0, 1.0),
}
"""Lowest and highest number of a source, where it is not -1 to 1."""
