"""Where the loader looks for libraries, and which of these places are to be trusted.

Source: SCHED.md 2.3, 2.4. Folders in order: that of plug-ins (ggml's is compiled in), that of the
program, the current one. A path given by hand replaces all of them. Two variables name one file
more each: ggml's, and ours.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_VARIABLES = ("GGML_BACKEND_PATH", "SPLITSCOPE_BACKEND_PATH")

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class SearchPath:
    """A folder, or a file, and why it is tried.

    `must_be_own`: nobody chose this place, so what lies there is run only if it belongs to the
    user and nobody else may write it.
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


def distrust(path: Path) -> str:
    """Why a file that nobody chose is not run; "" when file and folder are the user's alone."""
    if sys.platform == "win32":
        return "who else may write there cannot be told on this system"
    try:
        file = path.resolve()
        return _not_own(file, "the file") or _not_own(file.parent, "its folder")
    except OSError as error:
        return f"its owner cannot be told: {error.strerror}"


def _not_own(path: Path, thing: str) -> str:
    status = path.stat()
    if status.st_uid != os.getuid():
        return f"{thing} belongs to somebody else"
    return f"others may write {thing}" if status.st_mode & _OTHERS_MAY_WRITE else ""


def _current_dir() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return paths.program_dir()
