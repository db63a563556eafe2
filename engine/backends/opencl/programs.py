"""Programs of a device: one a .cl family and option, built when first asked for."""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING

import pyopencl as cl

from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

ProgramKey = tuple[str, str]
"""(family, option): the file under kernels/ and what it is built for, such as a weight type."""

SOURCES: dict[str, tuple[str, ...]] = {
    "elementwise": ("common", "elementwise"),
    "rows": ("common", "rows"),
    "set_rows": ("common", "set_rows"),
    "rope": ("common", "rope"),
    "get_rows": ("common", "weights", "get_rows"),
    "round_rows": ("common", "round_rows"),
    "mul_mat": ("common", "weights", "mul_mat"),
    "flash_attn": ("common", "flash_attn"),
}
"""Files of each family, in order."""

DEFINE: dict[str, str] = {"get_rows": "WEIGHT_", "mul_mat": "WEIGHT_", "flash_attn": "KV_"}
"""Prefix of the macro that an option defines."""


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

    def _build_family(self, key: ProgramKey) -> cl.Program:
        family, option = key
        source = "\n".join(_read(name) for name in SOURCES[family])
        options = [*self._options, *([f"-D{DEFINE[family]}{option.upper()}"] if option else [])]
        return build_program(
            self._context, self._device, source, options, f"{self._device_name}: {family} {option}"
        )


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


def _read(name: str) -> str:
    """One .cl file, with a line directive so that build logs name it."""
    text = files("engine.backends.opencl").joinpath("kernels", f"{name}.cl").read_text("utf-8")
    return f'#line 1 "{name}.cl"\n{text}'
