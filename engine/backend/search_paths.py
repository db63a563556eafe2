"""Where the loader looks for libraries, and which of these places are to be trusted.

Source: SCHED.md 2.3, 2.4. Folders in order: that of plug-ins (ggml's is compiled in), that of the
program, the current one. A path given by hand replaces all of them. Two variables name one file
more each: ggml's, and ours.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_VARIABLES = ("GGML_BACKEND_PATH", "SPLITSCOPE_BACKEND_PATH")

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_MOST_LINKS = 40
"""As many as Linux follows."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Look:
    """What lies at a path: its mode, 0 for nothing; `problem` says why that cannot be told."""

    mode: int = 0
    problem: str = ""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing lies there, for sure."""
        return not (self.mode or self.problem)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return stat.S_ISREG(self.mode)


def look_at(path: Path) -> Look:
    """What lies there. Never raises: a folder on the way may be closed, a name too long."""
    try:
        return Look(path.stat().st_mode)
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return Look()
        return Look(problem=error.strerror or str(error))
    except ValueError as error:
        return Look(problem=str(error))


@dataclass(frozen=True, slots=True)
class SearchPath:
    """A folder, or a file, and why it is tried.

    `must_be_own`: nobody asks for it now, so what lies there is run only if it belongs to the user
    or to root, and nobody else may write it.
    """

    path: Path
    why: str
    must_be_own: bool = False


def default_folders() -> tuple[SearchPath, ...]:
    """The folders that are searched when nobody names one; each once."""
    places = (
        SearchPath(paths.backends_dir(), "the folder of plug-ins"),
        SearchPath(paths.program_dir(), "the program's folder"),
        SearchPath(_current_dir(), "the current folder", must_be_own=True),
    )
    seen: dict[Path, SearchPath] = {}
    for place in places:
        seen.setdefault(place.path.resolve(), place)
    return tuple(seen.values())


def named_files(environment: Mapping[str, str] = os.environ) -> tuple[SearchPath, ...]:
    """The files that variables name; they are tried after everything else."""
    named = ((name, environment.get(name, "")) for name in FILE_VARIABLES)
    return tuple(SearchPath(Path(value).absolute(), name) for name, value in named if value)


def installed_file(path: Path, why: str) -> SearchPath:
    """What a package declares. Python looks in the current folder too: nobody chose that one."""
    here = _current_dir().resolve()
    is_here = any(p.is_relative_to(here) for p in (path.absolute(), path.resolve()))
    return SearchPath(path, why, must_be_own=is_here)


def distrust(path: Path) -> str:
    """Why a file is not run unasked; "" when nobody but the user and root can put another there.

    Every link on the way to it counts as it does, and so does the folder of each.
    """
    if sys.platform == "win32":
        return "who else may write there cannot be told on this system"
    try:
        found = (_not_own_step(step) for step in _steps(path.absolute()))
        return next((words for words in found if words), "")
    except OSError as error:
        return f"its owner cannot be told: {error.strerror}"


def _steps(path: Path) -> Iterator[Path]:
    """A path whose folder is no link, what it leads to if it is one, and so on to the file."""
    for _ in range(_MOST_LINKS):
        path = path.parent.resolve() / path.name
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _not_own_step(path: Path) -> str:
    thing, folder = "the file", "its folder"
    if path.is_symlink():
        thing, folder = "a link to it", "the folder of a link to it"
    return _not_own(path.lstat(), thing) or _not_own(path.parent.stat(), folder)


def _not_own(status: os.stat_result, thing: str) -> str:
    if status.st_uid not in (os.getuid(), _ROOT):
        return f"{thing} belongs to somebody else"
    # Who may write a link is not kept: only who may write its folder can change it.
    is_open = status.st_mode & _OTHERS_MAY_WRITE and not stat.S_ISLNK(status.st_mode)
    return f"others may write {thing}" if is_open else ""


def _current_dir() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return paths.program_dir()
