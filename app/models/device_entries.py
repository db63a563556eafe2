"""What the devices' table lists: every device, those left out, files that were not loaded. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType
from engine.core.load_report import Linkage

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from engine.core.devices import Unavailable
    from engine.core.load_report import Attempt
    from engine.core.options import Options
    from engine.core.summary import DeviceSummary


class Presence(enum.Enum):
    """How far a device got."""

    CHOSEN = enum.auto()
    """It is a backend of the shown plan."""
    LEFT_OUT = enum.auto()
    """It is registered, and the shown plan does without it."""
    REGISTERED = enum.auto()
    """It is registered, and nothing is planned."""
    HIDDEN = enum.auto()
    """It is here, and used through another backend."""
    ABSENT = enum.auto()
    """It cannot be used, and the reason is known."""
    NOT_LOADED = enum.auto()
    """A file of every start that could not be loaded."""


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """One row. `key` tells it from the others; `backend_id` is its place in the shown plan or -1.

    `why` says why it is not chosen, `hint` what would change that; both may be empty.
    """

    key: str
    name: str
    presence: Presence
    why: str = ""
    hint: str = ""
    device: DeviceSummary | None = None
    backend_id: int = -1

    @property
    def file(self) -> str:
        """The file it was loaded from, or was to be; "" for one that is built in."""
        if self.presence is Presence.NOT_LOADED:
            return self.key
        origin = None if self.device is None else self.device.origin
        if origin is None or origin.linkage is Linkage.STATIC or not origin.kind:
            return ""
        return origin.place

    @property
    def can_be_unloaded(self) -> bool:
        """Whether it is a device that came from a file."""
        return self.device is not None and bool(self.file)


def device_entries(state: AppState) -> tuple[DeviceEntry, ...]:
    """All of them: devices in the order of their priority, then what is left out."""
    here = [_entry(device, state) for device in state.devices]
    absent = [_absent(missing) for missing in state.unavailable]
    return (*here, *absent, *_not_loaded(state))


def entry_of(state: AppState, key: str) -> DeviceEntry | None:
    """The entry of a key."""
    return next((entry for entry in device_entries(state) if entry.key == key), None)


def presence_words(entry: DeviceEntry) -> str:
    """How far it got, for a narrow column."""
    if entry.presence is Presence.CHOSEN:
        return f"backend {entry.backend_id}"
    return {
        Presence.LEFT_OUT: "left out",
        Presence.REGISTERED: "no plan",
        Presence.HIDDEN: "hidden",
        Presence.ABSENT: "not here",
        Presence.NOT_LOADED: "not loaded",
    }[entry.presence]


def _entry(device: DeviceSummary, state: AppState) -> DeviceEntry:
    plan = state.shown_plan
    if plan is None:
        return DeviceEntry(device.name, device.name, Presence.REGISTERED, device=device)
    names = [row.name for row in plan.devices]
    if device.name in names:
        chosen = names.index(device.name)
        return DeviceEntry(
            device.name, device.name, Presence.CHOSEN, device=device, backend_id=chosen
        )
    options = None if state.plans is None else state.plans.options
    why, hint = _left_out(device, options)
    return DeviceEntry(device.name, device.name, Presence.LEFT_OUT, why, hint, device)


def _left_out(device: DeviceSummary, options: Options | None) -> tuple[str, str]:
    """Why a plan does without a device that is here, and what would bring it in."""
    if options is None:
        return "", ""
    takes_layers = device.type in (DeviceType.GPU, DeviceType.IGPU)
    if options.devices is not None and takes_layers:
        named = ",".join(options.devices) or "none"
        return f"the option -dev names others: {named}", f"Add {device.name} to -dev."
    if device.type is DeviceType.ACCEL:
        why = "an accelerator takes part where the options ask for it"
        return why, f"Name {device.name} in -dev, or see --blas."
    return "the options of this plan do without it", ""


def _absent(missing: Unavailable) -> DeviceEntry:
    presence = Presence.HIDDEN if missing.hidden else Presence.ABSENT
    return DeviceEntry(missing.name, missing.name, presence, missing.reason, missing.hint)


def _not_loaded(state: AppState) -> list[DeviceEntry]:
    """Files of every start that are not in use now."""
    ends = {attempt.path: attempt for attempt in state.load_report.attempts}
    return [
        _file_entry(path, ends.get(path))
        for path in state.loaded.at_start
        if path not in ends or not ends[path].outcome.is_loaded
    ]


def _file_entry(path: str, attempt: Attempt | None) -> DeviceEntry:
    why = "it was not tried yet" if attempt is None else attempt.reason or attempt.outcome.value
    hint = "It is tried again at the next start, unless that is taken back here."
    one_line = " ".join(why.split())
    return DeviceEntry(path, Path(path).name, Presence.NOT_LOADED, one_line, hint)
