"""LibraryKind: what the loader asks of one kind of backend library.

    python   splitscope_backend_<name>[-variant].py, and packages that declare an entry point
    ggml     [lib]ggml-<name>[-variant].{so,dll,dylib}

The loader knows none of them: they are handed in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backend.interface import BackendReg
    from engine.core.load_report import Probe


class LibraryKind(ABC):
    """One kind of library.

    `load_order` are the backends that `load_all` looks for, in that order; None: all whose files
    it finds, by name. `api_version` is the version of the contract that it takes.
    """

    name: str
    suffixes: tuple[str, ...]
    """Endings of files that may be such a library whatever they are called, such as ".so"."""
    load_order: tuple[str, ...] | None = None
    init_symbol: str
    """The function without which nothing can be registered."""
    score_symbol: str
    """The function that says how well a variant fits this computer; 0: not at all."""
    api_version: int

    @abstractmethod
    def backend_of(self, file_name: str) -> tuple[str, str] | None:
        """Backend and variant ("" for the base file) by the file's name; None: not of this kind."""

    @abstractmethod
    def base_file(self, backend: str) -> str:
        """The name of a backend's base file on this system."""

    @abstractmethod
    def probe(self, path: Path) -> Probe:
        """Try it in a throwaway process (see apart.py). Never raises: a crash is a result."""

    @abstractmethod
    def open(self, path: Path) -> BackendReg:
        """Load it into this process; DeviceError when that cannot be done."""

    def close(self, reg: BackendReg) -> None:
        """(optional) Let go of a family that `open` gave and that is not registered any more."""
        del reg

    def companions(self, path: Path) -> tuple[Path, ...]:
        """(optional) Other files that are run when this one is loaded."""
        del path
        return ()

    def installed(self) -> tuple[tuple[str, Path, str], ...]:
        """(optional) Libraries that packages declare: backend, file, and who declares it."""
        return ()
