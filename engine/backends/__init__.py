"""The backends that come with Splitscope, in the order they are registered; the CPU is last.

null    devices on paper: they plan, and compute nothing
opencl  GPUs and CPUs through pyopencl
blas    large products through numpy's BLAS, by choice
cpu     the CPU through numba
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import Unavailable

if TYPE_CHECKING:
    from engine.backend.registry import Registry


@dataclass(frozen=True, slots=True)
class Builtin:
    """A backend by name and the module whose `create()` makes its family."""

    name: str
    module: str
    hint: str = ""


BUILTIN = (
    Builtin("OpenCL", "engine.backends.opencl.reg", "Install pyopencl and an OpenCL driver."),
    Builtin("BLAS", "engine.backends.blas.reg", "Install threadpoolctl."),
    Builtin("CPU", "engine.backends.cpu.reg", "Install numba."),
)


def register_builtin(registry: Registry) -> None:
    """Register every built-in backend; a missing package is a state with a reason."""
    for builtin in BUILTIN:
        try:
            registry.register(importlib.import_module(builtin.module).create())
        except ImportError as error:
            registry.add_absent(
                Unavailable(builtin.name, f"{error.name or 'a package'} is missing", builtin.hint)
            )
