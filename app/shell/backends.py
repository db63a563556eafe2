"""Backends: load and unload them by hand, again after the engine ended, and at every start.

Requests are answered in order, so a model that is opened after files were asked for knows their
devices. What was loaded by hand comes back when the engine's process is started anew, unless it is
what ended it: a file that was being loaded, or one that an engine did not survive.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.shell.backend_text import (
    TOPIC,
    Loaded,
    in_use_message,
    loaded_files,
    loaded_message,
    loading_words,
    nodes_on,
    not_again_message,
    not_remembered_message,
    nothing_message,
    running_message,
    unloaded_message,
)
from app.shell.messages import failed_message
from app.shell.planning import IdleStep
from app.state.app_state import LoadedFiles
from engine.backend.search_paths import distrust
from engine.core.summary import Progress
from engine.service.messages import BackendsChanged, Failed, LoadBackend, UnloadBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.bridge.bridge import Bridge
    from app.shell.planning import Planning
    from app.state.app_state import AppState
    from app.state.settings import Settings
    from engine.core.load_report import LoadReport

DIED_LOADING = "the engine ended while it was being loaded"
DIED_WITH_IT = "the engine ended again after it was loaded"


class _Kind(enum.Enum):
    """Why something was asked for."""

    BY_HAND = enum.auto()
    UNDO = enum.auto()
    REDO = enum.auto()
    AGAIN = enum.auto()
    """The engine is a new one, or the window is: nothing is planned yet."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """Something that was asked for: `path` is a file or folder that is to be loaded.

    `name` is the path of what is taken out, `devices` are its devices.
    """

    kind: _Kind
    path: str = ""
    name: str = ""
    devices: tuple[str, ...] = ()
    is_last: bool = True
    """Whether it is the last of those asked for at once: then the model is planned."""


class Backends(QObject):
    """Wishes about backends, and what became of them. GUI thread only."""

    message = Signal(object)
    """Carries a Message."""
    message_gone = Signal(object)
    """Carries a topic."""
    progress = Signal(object)
    """Carries a Progress, or None when nothing is being loaded."""

    def __init__(
        self,
        state: AppState,
        bridge: Bridge,
        planning: Planning,
        settings: Settings | None = None,
        parent: QObject | None = None,
    ) -> None:
        """Without `settings` nothing is loaded at the start, and nothing remembered."""
        super().__init__(parent)
        self._state, self._bridge, self._planning = state, bridge, planning
        self._settings = settings
        self._wishes: dict[int, _Wish] = {}
        self._confirmed = ""
        self._failed_again: dict[str, str] = {}
        self._is_first_start = True
        self._is_proven = True
        """Whether the engine did something after files were loaded again."""
        at_start = () if settings is None else settings.start_backends
        state.set_loaded(LoadedFiles((), at_start))

    @property
    def is_loading(self) -> bool:
        """Whether something is being loaded or taken out."""
        return bool(self._wishes)

    @property
    def doing(self) -> str:
        """What the engine does for us, in words."""
        wish = next(iter(self._wishes.values()), None)
        if wish is None:
            return ""
        name = Path(wish.path).name
        return f"while loading {name}" if name else f"while unloading {Path(wish.name).name}"

    # Wishes.

    def load(self, paths: Sequence[str]) -> None:
        """Load files, or all of a folder."""
        self.message_gone.emit(TOPIC)
        self._send_load([str(Path(path).absolute()) for path in paths], _Kind.BY_HAND)

    def unload(self, key: str) -> None:
        """Take out the backend of a device; one that is in use on the second asking only."""
        device = self._state.device_of(key)
        if device is None or device.origin is None:
            return
        if self._state.is_computing:
            self.message.emit(running_message(device.name))
            return
        path = device.origin.place
        names = self._devices_of(path)
        n_nodes = nodes_on(self._state.shown_plan, names)
        if (n_nodes or self._is_named(names)) and self._confirmed != key:
            self._confirmed = key
            self.message.emit(in_use_message(device.name, n_nodes))
            return
        self._confirmed = ""
        self.message_gone.emit(TOPIC)
        self._send_unload([path], _Kind.BY_HAND)

    def set_at_start(self, path: str, *, is_on: bool) -> None:
        """Load a file at every start, or no longer; not if others than the user can change it."""
        reason = distrust(Path(path)) if is_on else ""
        if reason:
            self._state.set_loaded(self._state.loaded)  # The switch goes back.
            self.message.emit(not_remembered_message(path, reason))
            return
        paths = tuple(p for p in self._state.loaded.at_start if p != path)
        paths = (*paths, path) if is_on else paths
        if self._settings is not None:
            self._settings.start_backends = paths
            self._settings.save()
        self._state.set_loaded(replace(self._state.loaded, at_start=paths))

    def step(self, paths: Sequence[str], *, loads: bool, back: bool) -> None:
        """Go back or forth over an undo step that loaded files, or took them out."""
        self.message_gone.emit(TOPIC)
        send = self._send_load if loads is not back else self._send_unload
        send(paths, _Kind.UNDO if back else _Kind.REDO)

    def load_again(self) -> None:
        """Ask a new engine for what was loaded; before anything is opened."""
        loaded = self._state.loaded
        paths = loaded.at_start if self._is_first_start else loaded.by_hand
        self._is_first_start = False
        if paths:
            self._is_proven = False
            self._send_load(paths, _Kind.AGAIN)

    def on_engine_died(self) -> None:
        """What was being loaded, or loaded once more in vain, is not tried again."""
        wishes = list(self._wishes.values())
        reasons = {wish.path: DIED_LOADING for wish in wishes[:1] if wish.path}
        by_hand = [*self._state.loaded.by_hand, *(wish.path for wish in wishes[1:] if wish.path)]
        if not (self._is_proven or reasons):
            reasons = dict.fromkeys(by_hand, DIED_WITH_IT)
        self._wishes.clear()
        self.progress.emit(None)
        self._is_proven = True
        self._confirmed = ""
        left = tuple(path for path in dict.fromkeys(by_hand) if path not in reasons)
        self._state.set_loaded(replace(self._state.loaded, by_hand=left))
        if reasons:
            self.message.emit(not_again_message(reasons, self._state.loaded.at_start))

    # Answers.

    def on_planned(self) -> None:
        """The engine works with what was loaded."""
        self._is_proven = not self._wishes

    def on_changed(self, answer: BackendsChanged) -> None:
        """Show the devices of now, and say what became of it."""
        wish = self._wishes.pop(answer.request_id, None)
        before = {device.name for device in self._state.devices}
        self._state.set_devices(answer.devices, answer.unavailable, answer.load_report)
        if not self._wishes:
            self.progress.emit(None)
        if wish is None:
            return
        new = tuple(device.name for device in answer.devices if device.name not in before)
        self._count_files(answer.report, is_load=bool(wish.path))
        if wish.kind is _Kind.AGAIN:
            self._on_again(wish, answer.report)
            return
        if wish.path:
            self._on_loaded(wish, answer.report, new)
        else:
            self._on_unloaded(wish)
        if wish.is_last:
            names = [device.name for device in answer.devices]
            self._planning.see_devices(names, self._title(wish, new))

    def on_failed(self, answer: Failed) -> bool:
        """Say what could not be done; gives back whether it was ours."""
        wish = self._wishes.pop(answer.request_id, None)
        if wish is None:
            return False
        if not self._wishes:
            self.progress.emit(None)
        self.message.emit(failed_message(answer, TOPIC))
        return True

    # Inside.

    def _send_load(self, paths: Sequence[str], kind: _Kind) -> None:
        for i, path in enumerate(paths):
            request_id = self._bridge.next_id()
            self._wishes[request_id] = _Wish(kind, path=path, is_last=i == len(paths) - 1)
            unasked = kind is _Kind.AGAIN and path in self._state.loaded.at_start
            self._bridge.send(LoadBackend(request_id, Path(path), must_be_own=unasked))
        if paths:
            self.progress.emit(Progress(loading_words(paths), 0, 0))

    def _send_unload(self, paths: Sequence[str], kind: _Kind) -> None:
        for i, path in enumerate(paths):
            request_id = self._bridge.next_id()
            self._wishes[request_id] = _Wish(
                kind,
                name=path,
                devices=tuple(self._devices_of(path)),
                is_last=i == len(paths) - 1,
            )
            self._bridge.send(UnloadBackend(request_id, path))

    def _count_files(self, report: LoadReport, *, is_load: bool) -> None:
        """Keep which files were loaded by hand; those of every start count too."""
        loaded = self._state.loaded
        touched = [attempt.path for attempt in report.attempts]
        kept = tuple(path for path in loaded.by_hand if is_load or path not in touched)
        new = tuple(path for path in loaded_files(report) if path not in kept)
        self._state.set_loaded(replace(loaded, by_hand=(*kept, *new)))

    def _on_loaded(self, wish: _Wish, report: LoadReport, new: tuple[str, ...]) -> None:
        files = loaded_files(report)
        if not files:
            self.message.emit(nothing_message(wish.path, report))
            return
        if wish.kind is _Kind.BY_HAND:
            title = f"load {', '.join(Path(path).name for path in files)}"
            self._planning.undo_stack.push(_BackendStep(self, files, title, loads=True))
            self.message.emit(loaded_message(Loaded(files, new), report))
            if new:
                self._state.choose_device(new[0])

    def _on_unloaded(self, wish: _Wish) -> None:
        if wish.kind is _Kind.BY_HAND:
            name = self._gone(wish)
            step = _BackendStep(self, (wish.name,), f"unload {name}", loads=False)
            self._planning.undo_stack.push(step)
            is_at_start = wish.name in self._state.loaded.at_start
            self.message.emit(unloaded_message(name, is_at_start=is_at_start))

    def _on_again(self, wish: _Wish, report: LoadReport) -> None:
        if not loaded_files(report):
            attempt = next((a for a in report.attempts if a.reason), None)
            self._failed_again[wish.path] = "" if attempt is None else attempt.reason
            left = tuple(path for path in self._state.loaded.by_hand if path != wish.path)
            self._state.set_loaded(replace(self._state.loaded, by_hand=left))
        if wish.is_last and self._failed_again:
            failed, self._failed_again = self._failed_again, {}
            self.message.emit(not_again_message(failed, self._state.loaded.at_start))

    def _title(self, wish: _Wish, new: tuple[str, ...]) -> str:
        """What the difference is called; undo shows none."""
        if wish.kind is _Kind.UNDO:
            return ""
        if wish.path:
            return f"{', '.join(new) or Path(wish.path).name} loaded"
        return f"{self._gone(wish)} unloaded"

    def _gone(self, wish: _Wish) -> str:
        """What was taken out, in words."""
        return ", ".join(wish.devices) or Path(wish.name).name

    def _devices_of(self, path: str) -> list[str]:
        return [
            device.name
            for device in self._state.devices
            if device.origin is not None and device.origin.place == path
        ]

    def _is_named(self, names: Sequence[str]) -> bool:
        named = {name.lower() for name in self._planning.options.devices or ()}
        return any(name.lower() in named for name in names)


class _BackendStep(IdleStep):
    """Files that were loaded, or taken out; done already when it is pushed."""

    def __init__(
        self, backends: Backends, paths: tuple[str, ...], title: str, *, loads: bool
    ) -> None:
        super().__init__(title)
        self._backends, self._paths, self._loads = backends, paths, loads
        self._is_done = True

    def redo(self) -> None:
        """Do it again."""
        if not self._is_done:
            self._backends.step(self._paths, loads=self._loads, back=False)
        self._is_done = True

    def undo(self) -> None:
        """Take it back."""
        self._is_done = False
        self._backends.step(self._paths, loads=self._loads, back=True)
