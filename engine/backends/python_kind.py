"""Backends in Python: files `splitscope_backend_<name>[-variant].py`, and installed packages.

A package declares the entry point group `splitscope.backends`: NAME = its.module. File or module
offers `backend_init() -> BackendReg`, `API_VERSION`, and optionally `backend_score() -> int`.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.backend.apart import probe_apart
from engine.backend.interface import API_VERSION
from engine.backend.library_kind import LibraryKind
from engine.backends import python_plugin
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backend.interface import BackendReg
    from engine.backends.python_plugin import Plugin
    from engine.core.load_report import Probe

_NAME = re.compile(rf"{python_plugin.FILE_PREFIX}(?P<name>[^-]+)(-(?P<variant>.+))?\.py")


class PythonKind(LibraryKind):
    """Plug-ins in Python."""

    name = "python"
    suffixes = (".py",)
    init_symbol = python_plugin.INIT
    score_symbol = python_plugin.SCORE
    api_version = API_VERSION

    def __init__(self) -> None:
        self._plugins: dict[BackendReg, Plugin] = {}

    def backend_of(self, file_name: str) -> tuple[str, str] | None:
        """Backend and variant by the file's name."""
        match = _NAME.fullmatch(file_name)
        return None if match is None else (match["name"], match["variant"] or "")

    def base_file(self, backend: str) -> str:
        """The name of the file without a variant."""
        return f"{python_plugin.FILE_PREFIX}{backend}.py"

    def probe(self, path: Path) -> Probe:
        """Load it, score it and make its family in a throwaway process."""
        return probe_apart(python_plugin.__name__, path)

    def companions(self, path: Path) -> tuple[Path, ...]:
        """The packages that a declared module is in: theirs is run first."""
        if python_plugin.entry_point_of(path) is None:
            return ()
        packages = (folder / "__init__.py" for folder in path.parents)
        return tuple(itertools.takewhile(Path.is_file, packages))

    def open(self, path: Path) -> BackendReg:
        """Load it under a name that no other module has, and make its family."""
        # What it prints is not what was asked for.
        with contextlib.redirect_stdout(sys.stderr):
            return self._opened(path)

    def _opened(self, path: Path) -> BackendReg:
        try:
            plugin = python_plugin.load(path)
        except (Exception, SystemExit) as error:
            raise _refused(path, error) from error
        try:
            reg = plugin.init()
        except (Exception, SystemExit) as error:
            plugin.forget()
            raise _refused(path, error) from error
        self._plugins[reg] = plugin
        return reg

    def close(self, reg: BackendReg) -> None:
        """Forget its modules; what nobody holds any more goes with them."""
        self._plugins.pop(reg).forget()

    def installed(self) -> tuple[tuple[str, Path, str], ...]:
        """What installed packages declare."""
        return tuple(
            (entry.name, path, f"the package {entry.dist.name if entry.dist else entry.module}")
            for entry, path in python_plugin.entry_points()
        )


def _refused(path: Path, error: BaseException) -> DeviceError:
    return DeviceError(f"The plug-in {path.name} cannot be loaded.", f"It raised {error!r}.")
