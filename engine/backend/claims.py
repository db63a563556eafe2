"""What a device says of itself, checked before anybody relies on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.interface import BufferType
from engine.core.devices import DeviceFacts
from engine.core.visible import visible
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backend.interface import Device

_MEANS_SOMETHING = ",="
"""Characters by which options tell names apart."""


def check_claims(device: Device) -> DeviceFacts:
    """The facts of a device; DeviceError when they cannot be those of any."""
    facts = device.facts
    if not isinstance(facts, DeviceFacts):
        raise _refused("A device", f"its facts are {facts!r}, which is no DeviceFacts")
    name, wrong = facts.name, ""
    if not isinstance(name, str) or not _is_name(name):
        wrong = "a name has no spaces, commas, equals signs or characters without a picture"
    elif not _is_memory(facts.memory_free) or not _is_memory(facts.memory_total):
        wrong = f"its memory, {facts.memory_free!r} of {facts.memory_total!r}, is no count of bytes"
    elif facts.memory_free > facts.memory_total:
        wrong = f"{facts.memory_free:,} bytes are free, of {facts.memory_total:,}"
    elif not isinstance(device.buffer_type(), BufferType):
        wrong = f"its buffer_type() gives {device.buffer_type()!r}, which is no BufferType"
    if wrong:
        raise _refused(f"The device {visible(repr(name))}", wrong)
    return facts


def _is_name(name: str) -> bool:
    has_odd = any(c.isspace() or c in _MEANS_SOMETHING for c in name)
    return bool(name) and name.isprintable() and not has_odd


def _is_memory(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _refused(who: str, why: str) -> DeviceError:
    return DeviceError(
        f"{who} cannot be used: {why}.", hint="Whoever wrote the backend can mend it."
    )
