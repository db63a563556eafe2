"""Programs of a device, built when first asked for.

One a .cl family and its types, and those that have many kernels as steps.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyopencl as cl

from engine.backends.opencl.families import all_files, macros_of, read, type_macros
from engine.backends.opencl.step_sources import step_options, step_source
from engine.backends.opencl.steps import MAX_BUFFERS
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from engine.backends.opencl.families import ProgramKey
    from engine.backends.opencl.steps import StepKernel

STEP_ARGS = (None, np.dtype(np.uint64), np.dtype(np.uint64), *[None] * MAX_BUFFERS)
"""Arguments of run_steps: the table, its number of parts, groups, buffers."""


class StepProgram(NamedTuple):
    """run_steps of a program, and the number of each kernel that it has."""

    kernel: cl.Kernel
    numbers: Mapping[StepKernel, int]


class Programs:
    """The built programs of one device."""

    def __init__(
        self, context: cl.Context, device: cl.Device, device_name: str, options: Sequence[str]
    ) -> None:
        """`options` are given to the compiler for every family."""
        self._context = context
        self._device = device
        self._device_name = device_name
        self._options = tuple(options)
        self._built: dict[ProgramKey, cl.Program] = {}
        self._kernels: dict[tuple[ProgramKey, str], cl.Kernel] = {}
        self._step_programs: list[StepProgram] = []

    def kernel(self, key: ProgramKey, name: str, arg_types: Sequence[object]) -> cl.Kernel:
        """The kernel object of that name; builds its program first if need be.

        There is one object a kernel, whose arguments are set before each launch (2 us for 26 of
        them): making one takes pyopencl half a millisecond, which a graph of 600 nodes would feel.
        `arg_types` are numpy dtypes, None for buffers; they are set once.
        """
        if (key, name) not in self._kernels:
            if key not in self._built:
                self._built[key] = self._build_family(key)
            kernel = cl.Kernel(self._built[key], name)
            kernel.set_scalar_arg_dtypes(list(arg_types))
            self._kernels[key, name] = kernel
        return self._kernels[key, name]

    def steps(self, kernels: Collection[StepKernel]) -> StepProgram:
        """A program that has all of these kernels as steps; builds one if there is none."""
        for built in self._step_programs:
            if built.numbers.keys() >= set(kernels):
                return built
        # Sorted, since the same source is found in the driver's cache.
        ordered = sorted(set(kernels))
        options = [*self._options, *step_options(ordered)]
        label = f"{self._device_name}: the steps of a token"
        program = build_program(self._context, self._device, step_source(ordered), options, label)
        kernel = cl.Kernel(program, "run_steps")
        kernel.set_scalar_arg_dtypes(list(STEP_ARGS))
        made = StepProgram(kernel, {k: i for i, k in enumerate(ordered)})
        self._step_programs.append(made)
        return made

    def built(self) -> frozenset[ProgramKey]:
        """The programs built so far."""
        return frozenset(self._built)

    @property
    def n_step_programs(self) -> int:
        """Programs that have many kernels as steps, built so far."""
        return len(self._step_programs)

    def _build_family(self, key: ProgramKey) -> cl.Program:
        label = f"{self._device_name}: {' '.join(key)}"
        macros = dict.fromkeys((*type_macros(key), *macros_of(key)))
        options = [*self._options, *(f"-D{macro}" for macro in macros)]
        source = "\n".join(read(name) for name in all_files(key))
        return build_program(self._context, self._device, source, options, label)


def build_program(
    context: cl.Context, device: cl.Device, source: str, options: Sequence[str], label: str
) -> cl.Program:
    """Build `source` for one device.

    Raises: DeviceError with label, device and the compiler's log in its details.
    """
    program = cl.Program(context, source)
    try:
        with warnings.catch_warnings():
            # PoCL always writes something into the build log, and pyopencl warns of any log.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program.build(list(options), devices=[device])
    except cl.RuntimeError as error:
        raise DeviceError(
            f"The kernels of {label.strip()} could not be built.",
            "The OpenCL driver's compiler refused them.",
            "Install a newer driver, or run without OpenCL.",
            details=f"device: {device.name.strip()}\nkernels: {label.strip()}\n{error}",
        ) from error
    return program
