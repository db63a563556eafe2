"""What LLVM makes of operations whose speed rests on one instruction."""

import numba
import pytest
from numba import types

from engine.backends.cpu.codegen import HAS_FUSED_PAIRS, HAS_VNNI
from engine.backends.cpu.super_tiles import row_tile_q4_k, row_tile_q6_k


@pytest.mark.parametrize("tile", [row_tile_q4_k, row_tile_q6_k], ids=["q4_K", "q6_K"])
def test_a_product_of_shorts_and_its_sum_are_one_instruction_where_there_is_one(tile):
    @numba.njit(nogil=True)
    def run(w, row, block, n_rows, x, x_stride, count, n_blocks, out):
        tile(w, row, block, n_rows, x, x_stride, count, n_blocks, out)
        return 0

    run.compile((types.int64,) * 9)
    (code,) = run.inspect_asm().values()
    n_fused = code.count("vpdpwssd")
    if not HAS_VNNI:
        assert n_fused == 0
    elif HAS_FUSED_PAIRS:
        assert n_fused >= 16
        assert code.count("vpmaddwd") <= 4
