"""A backend library: opened once in a process, and never closed.

Libraries keep threads, caches and pointers into themselves, so ggml does not close them either: one
that is loaded again is the same one.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.backends.ggml.base import base_of, open_beside
from engine.backends.ggml.c_api import InitFunction, Object, ScoreFunction
from engine.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backends.ggml.base import Base

INIT_SYMBOL = "ggml_backend_init"
SCORE_SYMBOL = "ggml_backend_score"
API_VERSION = 2
"""GGML_BACKEND_API_VERSION: a library of another one is refused."""


@dataclass(frozen=True, eq=False)
class BackendLibrary:
    """A library that was opened. `path` is where it lies."""

    path: Path
    handle: ctypes.CDLL

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions of the contract that it has."""
        return tuple(name for name in (SCORE_SYMBOL, INIT_SYMBOL) if hasattr(self.handle, name))

    def score(self) -> int | None:
        """How well it fits this computer, by its own measure; None when it does not say."""
        function = self._function(SCORE_SYMBOL, ScoreFunction)
        return None if function is None else int(function())

    def base(self) -> Base:
        """Its libggml-base; DeviceError when that cannot be used."""
        return base_of(self.handle, self.path)

    def init(self) -> int | None:
        """The address of its family; None when it has none."""
        function = self._function(INIT_SYMBOL, InitFunction)
        return None if function is None else function()

    def _function(self, name: str, kind: Any) -> Any | None:
        address = ctypes.cast(getattr(self.handle, name), Object) if name in self.symbols else None
        return None if address is None else kind(address.value)


@cache
def open_library(path: Path) -> BackendLibrary:
    """The library at `path`, which is absolute; the same object each time.

    Raises: OSError with the text of the system's loader.
    """
    # A library that ends the process would print the stack into whatever we print.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    open_beside(path.parent)
    return BackendLibrary(path, ctypes.CDLL(str(path)))


def read_api_version(reg: int) -> int:
    """The version of the contract that a family was made for: its structure's first field."""
    return ctypes.c_int.from_address(reg).value


def proc_address(base: Base, reg: int, name: str, kind: Any) -> Any | None:
    """A function outside the contract by its name, as the C function type `kind`."""
    address = base.api.ggml_backend_reg_get_proc_address(reg, name.encode())
    return None if address is None else kind(address)


def refusal(base: Base, title: str, sentence: str = "", hint: str = "") -> DeviceError:
    """The error for something that a library refused, with what it said meanwhile."""
    return DeviceError(title, sentence, hint, base.log.take())
