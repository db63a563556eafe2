"""Devices for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.summary import BufferTypeSummary, DeviceSummary

if TYPE_CHECKING:
    from engine.backend.interface import Device
    from engine.core.devices import BufferTypeFacts, DeviceFacts
    from engine.core.load_report import Origin

FEATURES = "ggml_backend_get_features"


def device_summary(
    facts: DeviceFacts,
    *,
    virtual: bool,
    device: Device | None = None,
    reg_index: int = -1,
    origin: Origin | None = None,
) -> DeviceSummary:
    """A device for people; one on paper has no `device` behind it."""
    return DeviceSummary(
        name=facts.name,
        description=facts.description,
        type=facts.type,
        memory_free=facts.memory_free,
        memory_total=facts.memory_total,
        software=facts.software,
        virtual=virtual,
        memory_source=facts.memory_source,
        reg=facts.reg,
        reg_index=reg_index,
        device_id=facts.device_id,
        caps=facts.caps,
        bufts=_buffer_types(facts),
        features=() if device is None else _features(device),
        origin=origin,
    )


def _buffer_types(facts: DeviceFacts) -> tuple[BufferTypeSummary, ...]:
    host = () if facts.host_buft is None else (_buffer_type(facts.host_buft, "host"),)
    extra = (_buffer_type(buft, "extra") for buft in facts.extra_bufts)
    return (_buffer_type(facts.buft, "default"), *host, *extra)


def _buffer_type(buft: BufferTypeFacts, use: str) -> BufferTypeSummary:
    return BufferTypeSummary(buft.name, use, buft.alignment, buft.max_bytes, buft.is_host)


def _features(device: Device) -> tuple[tuple[str, str], ...]:
    """What its family says of itself, by name."""
    ask = device.reg.get_proc_address(FEATURES)
    return () if ask is None else tuple(sorted(ask().items()))
