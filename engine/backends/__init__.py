"""The backends that come with Splitscope, in the order they are registered; the CPU is last.

null    devices on paper: they plan, and compute nothing
opencl  GPUs and CPUs through pyopencl
blas    large products through numpy's BLAS, by choice
cpu     the CPU through numba
ggml    libraries of a llama.cpp install, when they are loaded
meta    several devices as one, for the run that asks for it

and what it takes to choose among them and to load others:

choice         which of the built-in ones are registered
python_kind    backends in Python files and packages, for the loader
python_plugin  one of them, tried in a process of its own
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backends.choice import FLAG, BackendChoice
from engine.core.devices import Unavailable
from engine.core.load_report import Linkage, Origin
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.backend.interface import BackendReg
    from engine.backend.library_kind import LibraryKind
    from engine.backend.registry import Registry


@dataclass(frozen=True, slots=True)
class Builtin:
    """A backend by name and the module whose `create()` makes its family.

    `option` is its name in lists of backends; each is on by default, on every platform.
    """

    name: str
    module: str
    hint: str = ""

    @property
    def option(self) -> str:
        """The name in small letters."""
        return self.name.lower()


BUILTIN = (
    Builtin("OpenCL", "engine.backends.opencl.reg", "Install pyopencl and an OpenCL driver."),
    Builtin("BLAS", "engine.backends.blas.reg", "Install threadpoolctl."),
    Builtin("CPU", "engine.backends.cpu.reg", "Install numba."),
)
OPTIONS = tuple(builtin.option for builtin in BUILTIN)

LIBRARY_KINDS = (
    ("engine.backends.python_kind", "PythonKind"),
    ("engine.backends.ggml.kind", "GgmlKind"),
)
"""Modules and classes, imported when the loader is made."""

MAKER = "create"


def register_builtin(registry: Registry, choice: BackendChoice | None = None) -> None:
    """Register the built-in backends that are chosen; why another is missing is a state."""
    choice = choice or BackendChoice()
    for builtin in BUILTIN:
        if choice.takes(builtin.option):
            _register(registry, builtin, choice)
        else:
            registry.add_absent(_turned_off(builtin, choice))
    for absent in choice.unknown(OPTIONS):
        registry.add_absent(absent)


def library_kinds() -> tuple[LibraryKind, ...]:
    """A new loader's kinds of library."""
    return tuple(getattr(importlib.import_module(module), name)() for module, name in LIBRARY_KINDS)


def _register(registry: Registry, builtin: Builtin, choice: BackendChoice) -> None:
    try:
        reg: BackendReg = getattr(importlib.import_module(builtin.module), MAKER)()
        registry.register(reg, _origin(builtin, choice, reg))
    except ImportError as error:
        reason = f"{error.name or 'a package'} is missing"
        registry.add_absent(Unavailable(builtin.name, reason, builtin.hint))
    except UserError as error:
        registry.add_absent(Unavailable(builtin.name, str(error).rstrip("."), builtin.hint))
    except Exception as error:  # noqa: BLE001 - one backend's fault must not take the others away
        reason = f"its own check came to an end with {error!r}"
        registry.add_absent(Unavailable(builtin.name, reason, builtin.hint))


def _origin(builtin: Builtin, choice: BackendChoice, reg: BackendReg) -> Origin:
    return Origin(
        backend=builtin.option,
        linkage=Linkage.STATIC,
        place=builtin.module,
        option=f"{FLAG} {builtin.option}",
        default="on",
        decided_by=choice.by,
        symbol=MAKER,
        api_version=reg.api_version,
    )


def _turned_off(builtin: Builtin, choice: BackendChoice) -> Unavailable:
    return Unavailable(
        builtin.name,
        f"it is off: {choice.by} is {choice.text}",
        f"Add {builtin.option} there.",
        hidden=True,
    )
