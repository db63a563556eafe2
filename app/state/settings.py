"""Settings: what is remembered between starts. Never stops the window from starting.

A value that cannot be read as what it should be is dropped, and the log says so.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QSettings

from app.theme.theme import ThemeChoice
from engine import paths

log = logging.getLogger(__name__)

LAYOUT_VERSION = 1
"""Raised when panes change: an older layout is then dropped."""

MAX_RECENT = 8
N_PREDICT_RANGE = (1, 4096)
DEFAULT_N_PREDICT = 48


@dataclass(frozen=True, slots=True)
class RecentFile:
    """A model that was opened. `when` in ISO 8601, local time."""

    path: str
    name: str
    facts: str
    n_bytes: int
    when: str


class Settings:
    """Typed values over an ini file."""

    def __init__(self, file: Path | None = None) -> None:
        """Read `file`; without one the settings of the user."""
        self._file = file or paths.settings_file()
        self._values = QSettings(str(self._file), QSettings.Format.IniFormat)
        if self._values.status() is not QSettings.Status.NoError:
            log.warning("The settings cannot be read and start anew: %s", self._file)

    def save(self) -> None:
        """Write to the file now."""
        self._values.sync()

    @property
    def theme(self) -> ThemeChoice:
        """The chosen theme."""
        text = str(self._values.value("theme", ThemeChoice.SYSTEM.value))
        try:
            return ThemeChoice(text)
        except ValueError:
            self._drop("theme", text)
            return ThemeChoice.SYSTEM

    @theme.setter
    def theme(self, choice: ThemeChoice) -> None:
        self._values.setValue("theme", choice.value)

    @property
    def n_predict(self) -> int:
        """Tokens to generate."""
        text = str(self._values.value("n_predict", DEFAULT_N_PREDICT))
        low, high = N_PREDICT_RANGE
        if text.isdecimal() and low <= int(text) <= high:
            return int(text)
        self._drop("n_predict", text)
        return DEFAULT_N_PREDICT

    @n_predict.setter
    def n_predict(self, n: int) -> None:
        self._values.setValue("n_predict", n)

    @property
    def shows_path(self) -> bool:
        """Whether the timeline shows the critical path."""
        text = str(self._values.value("critical_path", "off"))
        if text not in ("on", "off"):
            self._drop("critical_path", text)
        return text == "on"

    @shows_path.setter
    def shows_path(self, shows: bool) -> None:
        self._values.setValue("critical_path", "on" if shows else "off")

    @property
    def export_folder(self) -> str:
        """Where a trace was written last; the home folder while there is no such place."""
        folder = Path(str(self._values.value("export_folder", "")))
        return str(folder if folder.is_absolute() and folder.is_dir() else Path.home())

    @export_folder.setter
    def export_folder(self, folder: str) -> None:
        self._values.setValue("export_folder", folder)

    @property
    def option_sets(self) -> str:
        """The options that models had, as JSON; `OptionMemory` reads and writes it."""
        return str(self._values.value("options", "{}"))

    @option_sets.setter
    def option_sets(self, text: str) -> None:
        self._values.setValue("options", text)

    @property
    def open_sections(self) -> tuple[str, ...] | None:
        """The sections of options that are open; None for those that are open at first."""
        text = self._values.value("open_sections")
        return None if text is None else tuple(part for part in str(text).split() if part)

    @open_sections.setter
    def open_sections(self, ids: tuple[str, ...]) -> None:
        self._values.setValue("open_sections", " ".join(ids))

    @property
    def start_backends(self) -> tuple[str, ...]:
        """Files of backends that are loaded at every start."""
        text = str(self._values.value("start_backends", "[]"))
        try:
            return _paths(json.loads(text))
        except (ValueError, TypeError):
            self._drop("start_backends", text)
            return ()

    @start_backends.setter
    def start_backends(self, paths: tuple[str, ...]) -> None:
        self._values.setValue("start_backends", json.dumps(paths))

    @property
    def backend_folder(self) -> str:
        """Where a backend was loaded from last; the home folder while there is no such place."""
        folder = Path(str(self._values.value("backend_folder", "")))
        return str(folder if folder.is_absolute() and folder.is_dir() else Path.home())

    @backend_folder.setter
    def backend_folder(self, folder: str) -> None:
        self._values.setValue("backend_folder", folder)

    @property
    def geometry(self) -> QByteArray | None:
        """The window's place and size."""
        return self._bytes("window/geometry")

    @geometry.setter
    def geometry(self, state: QByteArray) -> None:
        self._values.setValue("window/geometry", state)

    @property
    def layout(self) -> QByteArray | None:
        """The panes' places, None if they were saved by another version of the layout."""
        if str(self._values.value("window/layout_version", "")) != str(LAYOUT_VERSION):
            return None
        return self._bytes("window/layout")

    @layout.setter
    def layout(self, state: QByteArray) -> None:
        self._values.setValue("window/layout", state)
        self._values.setValue("window/layout_version", LAYOUT_VERSION)

    @property
    def layout_width_px(self) -> int:
        """How wide the panes' area was when the layout was saved; 0 if that was not said."""
        text = str(self._values.value("window/layout_width", "0"))
        if text.isdecimal():
            return int(text)
        self._drop("window/layout_width", text)
        return 0

    @layout_width_px.setter
    def layout_width_px(self, width_px: int) -> None:
        self._values.setValue("window/layout_width", width_px)

    def forget_layout(self) -> None:
        """Start with the default panes next time."""
        self._values.remove("window/layout")

    @property
    def recent(self) -> tuple[RecentFile, ...]:
        """Opened models, newest first."""
        text = self._values.value("recent", "[]")
        try:
            return tuple(_recent_file(item) for item in json.loads(str(text)))[:MAX_RECENT]
        except (ValueError, TypeError):
            self._drop("recent", text)
            return ()

    def add_recent(self, file: RecentFile) -> None:
        """Put a model at the top of the list."""
        others = [item for item in self.recent if item.path != file.path]
        items = [asdict(item) for item in (file, *others)][:MAX_RECENT]
        self._values.setValue("recent", json.dumps(items))

    def _bytes(self, key: str) -> QByteArray | None:
        value = self._values.value(key)
        if value is None:
            return None
        if isinstance(value, QByteArray):
            return value
        self._drop(key, value)
        return None

    def _drop(self, key: str, value: object) -> None:
        log.warning("The setting %s cannot be used and is dropped: %.200r", key, value)
        self._values.remove(key)


def _paths(items: Any) -> tuple[str, ...]:
    """Absolute paths, each once; TypeError for anything else."""
    if not isinstance(items, list):
        raise TypeError(items)
    for item in items:
        if not isinstance(item, str) or not Path(item).is_absolute():
            raise TypeError(item)
    return tuple(dict.fromkeys(items))


def _recent_file(item: Any) -> RecentFile:
    """One entry; TypeError where a field is missing, of another type, or unknown."""
    if not isinstance(item, dict):
        raise TypeError(item)
    file = RecentFile(**item)
    for field in fields(RecentFile):
        wanted = int if field.name == "n_bytes" else str
        if not isinstance(getattr(file, field.name), wanted):
            raise TypeError(field.name)
    return file
