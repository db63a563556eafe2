"""What this machine can do at most, at this moment: reading memory, and multiplying.

Measured in the same run as everything else, before each pair: a figure that moves with its ceiling
says nothing of the engines. Memory is read by two loops, one of which asks for lines ahead of their
use; the faster one counts, and of everything the best of three tries.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import (
    LANES,
    Nearness,
    broadcast,
    constant,
    counting,
    dot,
    load,
    multiply_add,
    prefetch,
    variable,
)
from engine.backends.cpu.simd import define

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BUFFER_BYTES = 512 << 20
"""More than caches of most machines hold."""
LEAST_FREE = 4
"""No more than this part of the memory is taken."""
LINE = 64
STREAMS = 8
"""Cache lines of one step, each added to a sum of its own."""
AHEAD_BYTES = 4096
CHAINS = 12
"""Sums that do not wait for one another: enough for the latency of a multiply-add."""
N_STEPS = 400_000
N_TRIES = 3
"""The best of so many counts: a ceiling is what can be reached at that moment."""
_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_LONGS = ir.VectorType(_I64, 8)
_FLOATS = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)

OPERATIONS = {"f32": 2 * LANES * CHAINS, "int8": 8 * LANES * CHAINS}
"""Operations of one step, two a multiplication."""


def _emit_read(ahead: int) -> Callable[[ir.IRBuilder, list[ir.Value]], ir.Value]:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
        address, n_bytes = a
        sums = [variable(b, constant(_LONGS, 0)) for _ in range(STREAMS)]
        with counting(b, b.sdiv(n_bytes, _I64(STREAMS * LINE))) as i:
            base = b.add(address, b.mul(i, _I64(STREAMS * LINE)))
            for k, total in enumerate(sums):
                place = b.add(base, _I64(k * LINE))
                if ahead:
                    prefetch(b, b.add(place, _I64(ahead)), Nearness.FIRST_CACHE)
                b.store(b.add(b.load(total), load(b, place, _LONGS)), total)
        return _first_lane(b, sums, b.add)

    return emit


def _first_lane(b: ir.IRBuilder, sums: list[ir.Value], add: Callable[..., ir.Value]) -> ir.Value:
    """Something that depends on every sum, so that none is left out."""
    total = b.load(sums[0])
    for place in sums[1:]:
        total = add(total, b.load(place))
    return b.extract_element(total, _I32(0))


def _emit_f32(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    sums = [variable(b, constant(_FLOATS, float(k))) for k in range(CHAINS)]
    factor = constant(_FLOATS, 0.5)
    with counting(b, a[0]):
        for place in sums:
            b.store(multiply_add(b, [b.load(place), factor, factor]), place)
    return b.bitcast(_first_lane(b, sums, b.fadd), _I32)


def _emit_int8(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    sums = [variable(b, constant(_INTS, k)) for k in range(CHAINS)]
    with counting(b, a[0]) as i:
        # Another one each time: products of the same would be worked out beforehand, once.
        x = b.bitcast(broadcast(b, b.trunc(i, _I32), LANES), _BYTES)
        for place in sums:
            b.store(dot(b, b.load(place), constant(_BYTES, 3), x), place)
    return _first_lane(b, sums, b.add)


_read_plain: Any = define(_emit_read(0), types.int64, types.int64, types.int64)
_read_ahead: Any = define(_emit_read(AHEAD_BYTES), types.int64, types.int64, types.int64)
_f32: Any = define(_emit_f32, types.int32, types.int64)
_int8: Any = define(_emit_int8, types.int32, types.int64)


@numba.njit(nogil=True)
def _run_read_plain(address: int, n_bytes: int) -> Any:
    return _read_plain(address, n_bytes)


@numba.njit(nogil=True)
def _run_read_ahead(address: int, n_bytes: int) -> Any:
    return _read_ahead(address, n_bytes)


@numba.njit(nogil=True)
def _run_f32(n_steps: int) -> Any:
    return _f32(n_steps)


@numba.njit(nogil=True)
def _run_int8(n_steps: int) -> Any:
    return _int8(n_steps)


class Ceilings:
    """Measures a pass at a time; keeps what it measured by the name of the ceiling."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._threads = tuple(sorted(set(threads)))
        self._memory = np.ones(buffer_bytes() // 8, np.int64)
        self._address = int(self._memory.ctypes.data)
        self.passes: list[dict[str, float]] = []
        self._measured()  # compiles, and brings every page into being

    def measure(self) -> dict[str, float]:
        """One pass: GB/s of `read N` and 10^9 operations/s of `f32 N`, `int8 N` for N threads."""
        found = self._measured()
        self.passes.append(found)
        return found

    def _measured(self) -> dict[str, float]:
        found = {}
        for n in self._threads:
            n_bytes = self._memory.nbytes // n // (STREAMS * LINE) * (STREAMS * LINE)
            reads = [(self._address + i * n_bytes, n_bytes) for i in range(n)]
            loops = (_run_read_plain, _run_read_ahead)
            found[f"read {n}"] = n * n_bytes / 1e9 / min(_best(run, reads) for run in loops)
            for kind, run in (("f32", _run_f32), ("int8", _run_int8)):
                n_operations = n * N_STEPS * OPERATIONS[kind]
                found[f"{kind} {n}"] = n_operations / 1e9 / _best(run, [(N_STEPS,)] * n)
        return found


def buffer_bytes() -> int:
    """How much memory to read: less where the machine has little."""
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    total = os.sysconf(names[0]) * os.sysconf(names[1])
    return min(BUFFER_BYTES, total // LEAST_FREE // 4096 * 4096)


def _best(run: Any, arguments: Sequence[tuple[int, ...]]) -> float:
    return min(_seconds(run, arguments) for _ in range(N_TRIES))


def _seconds(run: Any, arguments: Sequence[tuple[int, ...]]) -> float:
    """How long the slowest of the threads takes, one for each tuple of arguments."""
    rest = [threading.Thread(target=run, args=each) for each in arguments[1:]]
    start = time.perf_counter()
    for thread in rest:
        thread.start()
    run(*arguments[0])
    for thread in rest:
        thread.join()
    return time.perf_counter() - start
