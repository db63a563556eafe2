"""A Python plug-in tried in a process of its own.

    python -m engine.backends.python_plugin PATH

`load_module` is how it is loaded there and in the process that uses it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import itertools
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backend.apart import step, telling
from engine.backend.interface import BackendReg
from engine.core.load_report import Probe
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENTRY_POINT_GROUP = "splitscope.backends"
FILE_PREFIX = "splitscope_backend_"
INIT, SCORE, VERSION = "backend_init", "backend_score", "API_VERSION"

_numbers = itertools.count(1)


class Plugin:
    """A plug-in in this process: `code` has its functions, `modules` came with it."""

    def __init__(self, code: Any, modules: frozenset[str]) -> None:
        self.code = code
        self.modules = modules

    def init(self) -> BackendReg:
        """The family that it makes; TypeError when it makes something else."""
        reg = getattr(self.code, INIT)()
        if not isinstance(reg, BackendReg):
            raise TypeError(f"{INIT} gave {type(reg).__name__}, which is no BackendReg")
        return reg

    def forget(self) -> None:
        """Take its modules out of Python."""
        for name in self.modules:
            sys.modules.pop(name, None)


def load(path: Path) -> Plugin:
    """The plug-in in a file, or that of the package which declares it; may raise anything."""
    entry = entry_point_of(path)
    return _load_file(path) if entry is None else _load_entry(entry)


def entry_points() -> tuple[tuple[importlib.metadata.EntryPoint, Path], ...]:
    """What installed packages declare, by name, each with the file of its module."""
    declared = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    located = ((entry, _file_of(entry)) for entry in sorted(declared, key=lambda e: e.name))
    return tuple((entry, path) for entry, path in located if path is not None)


def entry_point_of(path: Path) -> importlib.metadata.EntryPoint | None:
    """The entry point whose module is in this file."""
    there = path.resolve()
    return next((entry for entry, file in entry_points() if file.resolve() == there), None)


def _file_of(entry: importlib.metadata.EntryPoint) -> Path | None:
    """Where its module is, found without running anything of the package."""
    first, *rest = entry.module.split(".")
    spec = importlib.machinery.PathFinder.find_spec(first)
    for i, _ in enumerate(rest, 2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = ".".join([first, *rest][:i])
        places = spec.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec(name, places)
    return Path(spec.origin) if spec is not None and spec.origin else None


def _load_file(path: Path) -> Plugin:
    """A module of a name that nobody else has; compiled anew, so that no cache lies beside it."""
    name = f"{path.stem}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    plugin = Plugin(module, frozenset((name,)))
    # Dataclasses look their module up here.
    sys.modules[name] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except BaseException:
        plugin.forget()
        raise
    return plugin


def _load_entry(entry: importlib.metadata.EntryPoint) -> Plugin:
    before = frozenset(sys.modules)
    try:
        return Plugin(entry.load(), _new_modules(entry, before))
    except BaseException:
        Plugin(None, _new_modules(entry, before)).forget()
        raise


def _new_modules(entry: importlib.metadata.EntryPoint, before: frozenset[str]) -> frozenset[str]:
    """The modules of its package that were not there before."""
    top = entry.module.partition(".")[0]
    new = set(sys.modules) - before
    return frozenset(name for name in new if name == top or name.startswith(f"{top}."))


def _try(path: Path, tell: Callable[[Probe], None]) -> Probe:
    """Go as far as it lets us; each step is told, in case that the next one ends the process."""
    tell(step(Probe(opened=False)))
    try:
        plugin = load(path)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a plug-in raises is a result
        return Probe(opened=False, error=_words(error))
    probe = Probe(opened=True, symbols=_symbols(plugin.code))
    tell(step(probe))
    try:
        probe = replace(probe, api_version=_version(plugin.code), score=_score(plugin.code))
        tell(step(probe))
        if INIT in probe.symbols and probe.score != 0:
            probe = replace(probe, devices=_device_names(plugin.init()))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a plug-in raises is a result
        return replace(probe, error=_words(error))
    return probe


def _symbols(code: Any) -> tuple[str, ...]:
    return tuple(name for name in (INIT, SCORE, VERSION) if hasattr(code, name))


def _version(code: Any) -> int | None:
    version = getattr(code, VERSION, None)
    if version is not None and not isinstance(version, int):
        raise TypeError(f"{VERSION} is {version!r}, which is no whole number")
    return version


def _score(code: Any) -> int | None:
    score = getattr(code, SCORE)() if hasattr(code, SCORE) else None
    if score is not None and not isinstance(score, int):
        raise TypeError(f"{SCORE} gave {score!r}, which is no whole number")
    return score


def _device_names(reg: BackendReg) -> tuple[str, ...]:
    return tuple(device.facts.name for device in reg.devices())


def fault_of(error: BaseException) -> DeviceError | None:
    """What to say of an exception that comes out of a plug-in; None for any other."""
    place = _place_of(error)
    if place is None:
        return None
    path, line = place
    return DeviceError(
        f"The backend of {path.name} raised {error!r}.",
        f"It did so in line {line} of {path}.",
        "Leave it out, or check it: python -m engine ops --load FILE.",
    )


def _words(error: BaseException) -> str:
    """What was raised, and in which line of the plug-in."""
    if isinstance(error, SyntaxError):
        return f"it is no Python: {error.msg} in line {error.lineno}"
    place = _place_of(error)
    return f"it raised {error!r}" + ("" if place is None else f" in line {place[1]}")


def _place_of(error: BaseException) -> tuple[Path, int] | None:
    """The innermost line of a plug-in that an exception went through."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_plugin(frame.f_globals):
            found = Path(frame.f_code.co_filename), line
    return found


def _is_plugin(names: Mapping[str, Any]) -> bool:
    """Whether these are the names of a plug-in's module, perhaps not all of them yet."""
    name = str(names.get("__name__"))
    return name.startswith(FILE_PREFIX) or (INIT in names and name not in (__name__, "__main__"))


def _main() -> int:
    with telling() as tell:
        tell(_try(Path(sys.argv[1]), tell))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
