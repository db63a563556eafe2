"""The walk over the op table: one call a split, the same on every thread.

The control block is int64 words on separate cache lines; constants are byte offsets into it.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import call_llvm, pointer
from engine.backends.cpu.jit import entry, helper
from engine.backends.cpu.layout import BARRIER, FLAGS, KERNEL, PARALLEL, ROW_BYTES
from engine.backends.cpu.simd import IntOperation, define, load_i64, store_i64

N_ROWS = 0
TABLE = 8
TICKS = 16
"""Address of n_rows + 1 readings, row i ran from tick i to tick i + 1; then see ticks.py."""
STOP_WORD = 24
"""Address of the word that a person's stop sets; 0 for none."""
CLOCK = 32
"""Address of clock_gettime, then the clock's id."""
CLOCK_ID = 40
YIELD = 48
"""Address of a function that gives up the processor."""
COUNTS = 56
"""Whether ticks are the processor's counter; else they are the clock itself."""
ARRIVED = 64
GENERATION = 128
"""Barriers passed so far."""
HALT = 192
"""The row behind whose barrier everyone stops; -1 for none. Written by thread 0 only."""
STATUS = 256
"""First status of a kernel that was not OK, and the row it came from."""
STATUS_ROW = 264
JOB = 320
"""Number of the split being computed; a change wakes the workers."""
QUIT = 384
TIMESPEC = 448
"""Room for the clock's answer."""
PARKED = 512
"""One cache line a thread: 1 while it sleeps, or is about to, and has to be woken."""
WAKE = 8
"""In the same line: whether `announce` found it asleep."""
LINE = 64

DONE = 0
STOPPED = 1
BAD_STATUS = 2
ASLEEP = 3

SPINS = 20
"""Pauses before a waiting thread starts to give up its processor: a hog then costs little."""
FINE_NS, TRIES = 1_000, 8
"""A tick and the clock are read again, so many times, while that takes longer."""
PARK_AFTER_NS = 1_000_000
"""How long a worker waits for the next split before it sleeps: longer than between two tokens."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _call_kernel(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
    return b.call(pointer(b, a[0], kind), a[1:])


def _read_clock(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    function, clock_id, answer = a
    kind = ir.FunctionType(_I32, [_I32, _I64])
    b.call(pointer(b, function, kind), [b.trunc(clock_id, _I32), answer])
    seconds = b.load(pointer(b, answer, _I64))
    rest = b.load(pointer(b, b.add(answer, _I64(8)), _I64))
    return b.add(b.mul(seconds, _I64(1_000_000_000)), rest)


def _read_counter(b: ir.IRBuilder, _a: list[ir.Value]) -> ir.Value:
    if "x86" not in b.module.triple:
        return _I64(0)
    return call_llvm(b, "llvm.readcyclecounter", _I64, [])


def _give_way(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    b.call(pointer(b, a[0], ir.FunctionType(_I32, [])), [])


def _pause(b: ir.IRBuilder, _a: list[ir.Value]) -> None:
    if "x86" not in b.module.triple:
        return
    call_llvm(b, "llvm.x86.sse2.pause", ir.VoidType(), [])


call_kernel: IntOperation = define(_call_kernel, types.int64, *[types.int64] * 4)
read_clock: IntOperation = define(_read_clock, types.int64, types.int64, types.int64, types.int64)
read_counter: IntOperation = define(_read_counter, types.int64)
give_way = define(_give_way, types.void, types.int64)
pause = define(_pause, types.void)
atomic_add: IntOperation = define(
    lambda b, a: b.atomic_rmw("add", pointer(b, a[0], _I64), a[1], "seq_cst"),
    types.int64,
    types.int64,
    types.int64,
)
atomic_swap: IntOperation = define(
    lambda b, a: b.atomic_rmw("xchg", pointer(b, a[0], _I64), a[1], "seq_cst"),
    types.int64,
    types.int64,
    types.int64,
)
atomic_load: IntOperation = define(
    lambda b, a: b.load_atomic(pointer(b, a[0], _I64), "seq_cst", 8), types.int64, types.int64
)
atomic_store = define(
    lambda b, a: b.store_atomic(a[1], pointer(b, a[0], _I64), "seq_cst", 8) and None,
    types.void,
    types.int64,
    types.int64,
)


@helper
def meet(control: int, nth: int) -> None:
    """Wait until all `nth` threads are here."""
    generation = atomic_load(control + GENERATION)
    if atomic_add(control + ARRIVED, 1) == nth - 1:
        atomic_store(control + ARRIVED, 0)
        atomic_store(control + GENERATION, generation + 1)
        return
    spins = 0
    while atomic_load(control + GENERATION) == generation:
        spins += 1
        if spins > SPINS:
            give_way(load_i64(control + YIELD))
        else:
            pause()


@helper
def outcome(control: int, otherwise: int) -> int:
    """What a walk comes to: a kernel's report comes before anything else."""
    if atomic_load(control + STATUS) != 0:
        return BAD_STATUS
    return otherwise


@helper
def stop_asked(control: int) -> bool:
    """Whether a person asked to stop."""
    word = load_i64(control + STOP_WORD)
    return word != 0 and atomic_load(word) != 0


@helper
def must_stop(control: int) -> bool:
    """Whether a person asked to stop or a kernel reported something. Thread 0 only."""
    return stop_asked(control) or atomic_load(control + STATUS) != 0


@helper
def halt(control: int, i_row: int, nth: int) -> None:
    """Thread 0, after row `i_row`: tell the others at the next barrier that no row follows.

    Rows up to that barrier are thread 0's alone, so nobody has begun what is left out. They meet
    twice: thread 0 may not go on before everyone has read HALT. Behind the last row they return
    without reading it.
    """
    n_rows, table = load_i64(control + N_ROWS), load_i64(control + TABLE)
    i_barrier = i_row
    while load_i64(table + i_barrier * ROW_BYTES + FLAGS) & BARRIER == 0:
        i_barrier += 1
    atomic_store(control + HALT, i_barrier)
    if nth > 1:
        meet(control, nth)
        if i_barrier + 1 < n_rows:
            meet(control, nth)


@helper
def now(control: int) -> int:
    """A tick."""
    if load_i64(control + COUNTS) != 0:
        return read_counter()
    return read_clock(load_i64(control + CLOCK), load_i64(control + CLOCK_ID), control + TIMESPEC)


@helper
def anchor(control: int, tick: int, place: int) -> None:
    """Read a tick into `tick`, and at `place` the clock before and behind it."""
    clock, clock_id = load_i64(control + CLOCK), load_i64(control + CLOCK_ID)
    for _ in range(TRIES):
        before_ns = read_clock(clock, clock_id, control + TIMESPEC)
        store_i64(tick, now(control))
        after_ns = read_clock(clock, clock_id, control + TIMESPEC)
        store_i64(place, before_ns)
        store_i64(place + 8, after_ns)
        if after_ns - before_ns <= FINE_NS:
            return


@entry
def lead(control: int, nth: int) -> int:
    """Thread 0's walk: run rows, read ticks, look at the stop word between rows."""
    n_rows, table = load_i64(control + N_ROWS), load_i64(control + TABLE)
    ticks = load_i64(control + TICKS)
    anchors = ticks + 8 * (n_rows + 1)
    anchor(control, ticks, anchors)
    for i_row in range(n_rows):
        row = table + i_row * ROW_BYTES
        if i_row > 0:
            store_i64(ticks + 8 * i_row, now(control))
        flags = load_i64(row + FLAGS)
        n_threads = nth
        if flags & PARALLEL == 0:
            n_threads = 1
        status = call_kernel(load_i64(row + KERNEL), row, 0, n_threads)
        if status != 0:
            store_i64(control + STATUS_ROW, i_row)
            atomic_store(control + STATUS, status)
        if i_row + 1 < n_rows and must_stop(control):
            halt(control, i_row, nth)
            return outcome(control, STOPPED)
        if nth > 1 and flags & BARRIER != 0:
            meet(control, nth)
    anchor(control, ticks + 8 * n_rows, anchors + 16)
    return outcome(control, DONE)


@helper
def follow(control: int, ith: int, nth: int) -> None:
    """Another thread's walk: its share of the parallel rows, and every barrier."""
    n_rows, table = load_i64(control + N_ROWS), load_i64(control + TABLE)
    for i_row in range(n_rows):
        row = table + i_row * ROW_BYTES
        flags = load_i64(row + FLAGS)
        if flags & PARALLEL != 0:
            status = call_kernel(load_i64(row + KERNEL), row, ith, nth)
            if status != 0:
                store_i64(control + STATUS_ROW, i_row)
                atomic_store(control + STATUS, status)
        if flags & BARRIER == 0:
            continue
        meet(control, nth)
        if i_row + 1 < n_rows and atomic_load(control + HALT) == i_row:
            meet(control, nth)
            return


@entry
def work(control: int, ith: int, nth: int, last_job: int) -> int:
    """A worker's life: compute splits until there is none for a while; give back the last job.

    The caller then sleeps until it is woken. PARKED is set before the last look at JOB, and
    whoever starts a split swaps it back, so no split is missed.
    """
    parked = control + PARKED + LINE * ith
    answer = parked + 16
    clock, clock_id = load_i64(control + CLOCK), load_i64(control + CLOCK_ID)
    since_ns = read_clock(clock, clock_id, answer)
    spins = 0
    while True:
        job = atomic_load(control + JOB)
        if job != last_job:
            if atomic_load(control + QUIT) != 0:
                return job
            follow(control, ith, nth)
            last_job = job
            since_ns = read_clock(clock, clock_id, answer)
            spins = 0
            continue
        spins += 1
        if spins <= SPINS:
            pause()
            continue
        give_way(load_i64(control + YIELD))
        if read_clock(clock, clock_id, answer) - since_ns > PARK_AFTER_NS:
            atomic_store(parked, 1)
            if atomic_load(control + JOB) == last_job or atomic_swap(parked, 0) == 0:
                return last_job


@entry
def announce(control: int, nth: int) -> int:
    """Number the next split; give back how many threads sleep, now the caller's to wake."""
    atomic_add(control + JOB, 1)
    n_asleep = 0
    for ith in range(1, nth):
        line = control + PARKED + LINE * ith
        asleep = atomic_swap(line, 0)
        store_i64(line + WAKE, asleep)
        n_asleep += asleep
    return n_asleep


@entry
def begin(control: int, nth: int, table: int, n_rows: int, ticks: int) -> int:
    """Announce a split and, if nobody sleeps, lead it to its end; what `lead` gives, or ASLEEP.

    The caller then has to wake whom `announce` found asleep before it calls `lead`. Whether to
    stop is looked at here too: once the split is announced, the others begin its first row.
    """
    if stop_asked(control):
        return STOPPED
    store_i64(control + N_ROWS, n_rows)
    store_i64(control + TABLE, table)
    store_i64(control + TICKS, ticks)
    store_i64(control + HALT, -1)
    store_i64(control + STATUS, 0)
    if announce(control, nth) > 0:
        return ASLEEP
    return lead(control, nth)
