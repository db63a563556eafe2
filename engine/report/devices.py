"""Devices for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.summary import DeviceSummary

if TYPE_CHECKING:
    from engine.core.devices import DeviceFacts


def device_summary(facts: DeviceFacts, *, virtual: bool) -> DeviceSummary:
    """A device for people."""
    return DeviceSummary(
        name=facts.name,
        description=facts.description,
        type=facts.type,
        memory_free=facts.memory_free,
        memory_total=facts.memory_total,
        software=facts.software,
        virtual=virtual,
    )
