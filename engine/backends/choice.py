"""Which of the built-in backends are registered: ggml's GGML_* build options, at start-up here.

In order of weight: --backends, $SPLITSCOPE_BACKENDS, the key `backends` of the settings file; else
all of them. Each is a list such as `blas,cpu`; `all` and `none` are words for themselves. What
names no backend is an error on the command line, and a note elsewhere: settings stop no start.
"""

from __future__ import annotations

import configparser
import difflib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import paths
from engine.core.devices import Unavailable
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

FLAG = "--backends"
VARIABLE = "SPLITSCOPE_BACKENDS"
SETTING = "backends"
BY_DEFAULT = "default"

ALL, NONE = "all", "none"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """`names` in small letters, None for all; `by` says who chose; `text` is what was written."""

    names: frozenset[str] | None = None
    by: str = BY_DEFAULT
    text: str = ""

    def takes(self, name: str) -> bool:
        """Whether a backend is to be registered."""
        return self.names is None or name in self.names

    def unknown(self, known: Collection[str]) -> tuple[Unavailable, ...]:
        """What was chosen and does not exist."""
        return tuple(
            Unavailable(name, f"{self.by} names it, and no built-in backend is called so",
                        f"There are {', '.join(known)}.")
            for name in sorted((self.names or frozenset()) - set(known))
        )  # fmt: skip


def choose_backends(
    typed: str | None,
    known: Collection[str],
    environment: Mapping[str, str] = os.environ,
    settings: Path | None = None,
) -> BackendChoice:
    """What a person chose, by the place that weighs most.

    Raises:
        DeviceError: `typed`, from the command line, names a backend that does not exist.
    """
    if typed is not None:
        choice = _read(typed, FLAG)
        _refuse_unknown(choice, known)
        return choice
    if environment.get(VARIABLE):
        return _read(environment[VARIABLE], VARIABLE)
    text = _setting(settings or paths.settings_file())
    return _read(text, "the settings file") if text else BackendChoice()


def _read(text: str, by: str) -> BackendChoice:
    names = frozenset(part.strip().lower() for part in text.split(",")) - {""}
    if ALL in names:
        return BackendChoice(None, by, text)
    return BackendChoice(names - {NONE}, by, text)


def _refuse_unknown(choice: BackendChoice, known: Collection[str]) -> None:
    for name in sorted((choice.names or frozenset()) - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        raise DeviceError(
            f"There is no built-in backend {name}.",
            f"{FLAG} takes {', '.join(known)}, {ALL} or {NONE}.",
            f"Did you mean {near[0]}?" if near else "A backend in a file is loaded with --load.",
        )


def _setting(file: Path) -> str:
    """The key of the file that the window writes; "" where there is none or it cannot be read."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return ""
    return (parser.get("General", SETTING, fallback="") or "").strip().strip('"')
