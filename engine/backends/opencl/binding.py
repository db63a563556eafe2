"""Kernel calls -> launches: kernels found, buffers and numbers as the driver takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from engine.backend.interface import Place
from engine.backends.opencl.arguments import ceil_div
from engine.backends.opencl.buffer import OpenClBuffer
from engine.backends.opencl.launches import Launch
from engine.backends.opencl.steps import MAX_BUFFERS, runs_of, step_kernel, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.backend.interface import Buffer
    from engine.backends.opencl.arguments import KernelCall
    from engine.backends.opencl.device import OpenClDevice
    from engine.backends.opencl.programs import StepProgram
    from engine.backends.opencl.steps import Table

GROUPS_PER_UNIT = 4
"""Groups of run_steps for each unit: drivers hand out several at once to whoever asks first."""


def bind_all(device: OpenClDevice, calls: Iterable[KernelCall]) -> tuple[Launch, ...]:
    """The launches of some calls in order; on devices that take steps many calls share one."""
    if not device.tuning.steps:
        return tuple(_bind(device, call) for call in calls)
    return tuple(
        bind_steps(device, run) if len(run) > 1 else _bind(device, run[0]) for run in runs_of(calls)
    )


def bind_steps(device: OpenClDevice, calls: Sequence[KernelCall]) -> Launch:
    """The calls as steps of one launch."""
    program = device.programs.steps({step_kernel(call) for call in calls})
    return _launch(device, program, table_of(calls, program.numbers, _n_units(device)))


def bind_no_steps(device: OpenClDevice, calls: Sequence[KernelCall]) -> Launch:
    """A launch that computes nothing, of the program that has the kernels of `calls` as steps."""
    program = device.programs.steps({step_kernel(call) for call in calls})
    return _launch(device, program, table_of((), program.numbers, _n_units(device)))


def _launch(device: OpenClDevice, program: StepProgram, table: Table) -> Launch:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    words = cl.Buffer(device.context, flags, hostbuf=table.words)
    memories = [_memory(buffer) for buffer in table.buffers]
    memories += [words] * (MAX_BUFFERS - len(memories))
    n_groups = GROUPS_PER_UNIT * _n_units(device)
    args: tuple[cl.Buffer | float, ...] = (words, table.n_parts, n_groups, *memories)
    return Launch(program.kernel, args, (n_groups, 1, 1), (1, 1, 1))


def _n_units(device: OpenClDevice) -> int:
    return int(device.handle.max_compute_units)


def _bind(device: OpenClDevice, call: KernelCall) -> Launch:
    types = [None if isinstance(a, Place) else a.dtype for a in call.args]
    kernel = device.programs.kernel(call.program, call.kernel, types)
    args = tuple(_memory(a.buffer) if isinstance(a, Place) else a.item() for a in call.args)
    group = device.tuning.group_items
    items = ceil_div(call.items[0], group) * group
    return Launch(kernel, args, (items, call.items[1], call.items[2]), (group, 1, 1))


def _memory(buffer: Buffer) -> cl.Buffer:
    assert isinstance(buffer, OpenClBuffer), buffer
    return buffer.memory
