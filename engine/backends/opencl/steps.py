"""Launches that become steps of one launch, and the table that describes them. Pure.

The layout of the table is that of kernels/steps.cl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.backend.interface import Place
from engine.backends.opencl.arguments import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from engine.backend.interface import Buffer
    from engine.backends.opencl.arguments import KernelCall

MAX_BUFFERS = 8
"""Buffers that run_steps takes."""
MIN_STEPS = 4
"""Launches in a row that are worth a table, and a program that has all of their kernels."""
PARTS_PER_UNIT = 16
"""Parts of a step for each unit of the device: the last ones to finish wait for one part."""
UNSUITABLE = frozenset({"mul_mat_tile", "mul_mat_id_tile", "flash_attn"})
"""Kernels for many columns: their work outweighs a launch, and what they keep in scratch is large.
"""
FIRST_STEP = 24
"""Where the steps begin: the counters come before them."""
UNITS_WORD = 17
"""Where the number of units stands."""
HEAD_WORDS = 8

Words = npt.NDArray[np.uint64]


class StepKernel(NamedTuple):
    """A kernel as steps call it; `kinds` are the numpy kinds of its arguments, "p" for buffers."""

    program: tuple[str, str]
    name: str
    kinds: str


class Table(NamedTuple):
    """What run_steps takes: the table, its number of parts, and the buffers by their number."""

    words: Words
    n_parts: int
    buffers: tuple[Buffer, ...]


def step_kernel(call: KernelCall) -> StepKernel:
    """The kernel of a call."""
    kinds = "".join("p" if isinstance(a, Place) else a.dtype.kind for a in call.args)
    return StepKernel(call.program, call.kernel, kinds)


def is_suitable(call: KernelCall) -> bool:
    """Whether a call may be a step."""
    return call.kernel not in UNSUITABLE


def runs_of(calls: Iterable[KernelCall]) -> Iterator[tuple[KernelCall, ...]]:
    """The calls in order: those that become steps of one launch together, others alone."""
    run: list[KernelCall] = []
    buffers: set[int] = set()
    for call in calls:
        more = {id(a.buffer) for a in call.args if isinstance(a, Place)}
        if run and (not is_suitable(call) or len(buffers | more) > MAX_BUFFERS):
            yield from _cut(run)
            run, buffers = [], set()
        if is_suitable(call):
            run.append(call)
            buffers |= more
        else:
            yield (call,)
    yield from _cut(run)


def _cut(run: list[KernelCall]) -> Iterator[tuple[KernelCall, ...]]:
    if len(run) >= MIN_STEPS:
        yield tuple(run)
    else:
        yield from ((call,) for call in run)


def table_of(calls: Iterable[KernelCall], numbers: Mapping[StepKernel, int], n_units: int) -> Table:
    """The table of some calls; `numbers` are those of the kernels in the program that runs it."""
    buffers: dict[int, tuple[int, Buffer]] = {}
    parts = [np.zeros(FIRST_STEP, np.uint64)]
    parts[0][UNITS_WORD] = n_units
    n_parts = 0
    for call in calls:
        arguments = [_word(argument, buffers) for argument in call.args]
        n_items = call.items[0] * call.items[1] * call.items[2]
        per_part = ceil_div(n_items, PARTS_PER_UNIT * n_units)
        number = numbers[step_kernel(call)]
        head = (HEAD_WORDS + len(arguments), number, n_parts, per_part, *call.items, n_items)
        parts.append(np.array((*head, *arguments), np.uint64))
        n_parts += ceil_div(n_items, per_part)
    end = np.array((HEAD_WORDS, 0, n_parts, 1, 1, 1, 1, 0), np.uint64)
    ordered = tuple(buffer for _, buffer in sorted(buffers.values(), key=lambda pair: pair[0]))
    return Table(np.concatenate((*parts, end)), n_parts, ordered)


def _word(argument: Place | np.generic, buffers: dict[int, tuple[int, Buffer]]) -> int:
    """An argument as a word; buffers that are new get a number."""
    if isinstance(argument, Place):
        known = buffers.setdefault(id(argument.buffer), (len(buffers), argument.buffer))
        return known[0]
    if argument.dtype.kind == "f":
        return int(argument.view(np.uint32))
    # Negative counts keep their bits.
    return int(argument) & 0xFFFFFFFFFFFFFFFF
