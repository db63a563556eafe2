"""What comes before MUL_MAT_ID: pairs (token, slot) sorted by expert, and their columns gathered.

SHARED: n_expert + 1 numbers, where each expert's pairs begin; then the pairs, token * n_used +
slot, in order within an expert; then the columns, one a pair.
"""

from __future__ import annotations

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import address, nb, ne, param, row_at, share
from engine.backends.cpu.kernels.quantize import quantize_column
from engine.backends.cpu.layout import SHARED, SRC1, SRC2, STATUS_BAD_INDEX
from engine.backends.cpu.simd import load_i32, load_i64, store_i64

ROUNDING, COLUMN_BYTES, PAIRS_AT, COLUMNS_AT, N_USED, N_EXPERT, N_PAIRS = range(7)
"""Parameters of both rows."""


@helper
def _expert_of(p: int, pair: int) -> int:
    n_used = ne(p, SRC2, 0)
    place = address(p, SRC2) + pair % n_used * nb(p, SRC2, 0) + pair // n_used * nb(p, SRC2, 1)
    return load_i32(place)


@kernel
def group_experts(p: int, _ith: int, _nth: int) -> int:
    """Sort the pairs of ids src2 i32 [n_used, t] by expert, keeping their order; one thread."""
    n_experts, n_pairs, begins = param(p, N_EXPERT), param(p, N_PAIRS), load_i64(p + SHARED)
    for i_expert in range(n_experts + 1):
        store_i64(begins + 8 * i_expert, 0)
    for pair in range(n_pairs):
        i_expert = _expert_of(p, pair)
        if i_expert < 0 or i_expert >= n_experts:
            return STATUS_BAD_INDEX
        place = begins + 8 * (i_expert + 1)
        store_i64(place, load_i64(place) + 1)
    for i_expert in range(n_experts):
        place = begins + 8 * (i_expert + 1)
        store_i64(place, load_i64(place) + load_i64(place - 8))
    # From the last pair down, each begin moves from the end of its expert to its place.
    ends = begins + 8
    for pair in range(n_pairs - 1, -1, -1):
        place = ends + 8 * _expert_of(p, pair)
        store_i64(place, load_i64(place) - 1)
        store_i64(begins + param(p, PAIRS_AT) + 8 * load_i64(place), pair)
    for i_expert in range(n_experts):
        place = begins + 8 * i_expert
        store_i64(place, load_i64(place + 8))
    store_i64(begins + 8 * n_experts, n_pairs)
    return 0


@kernel
def gather_columns(p: int, ith: int, nth: int) -> int:
    """Write the column of src1 f32 [k, 1 or n_used, t] that belongs to each pair, in their order.

    ROUNDING says how, as `quantize_column` takes it.
    """
    shared, kind, n_used = load_i64(p + SHARED), param(p, ROUNDING), param(p, N_USED)
    pairs, columns = shared + param(p, PAIRS_AT), shared + param(p, COLUMNS_AT)
    k, n1 = ne(p, SRC1, 0), ne(p, SRC1, 1)
    first, end = share(param(p, N_PAIRS), ith, nth)
    for i in range(first, end):
        pair, y = load_i64(pairs + 8 * i), columns + i * param(p, COLUMN_BYTES)
        x = row_at(p, SRC1, pair % n_used % n1, pair // n_used, 0)
        quantize_column(kind, y, x, k)
    return 0
