"""A device with all that is known of it, in words: printed, and copied from the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.devices import DeviceCaps
    from engine.core.load_report import Origin
    from engine.core.summary import BufferTypeSummary, DeviceSummary

NONE = "\u2013"
MIB = 1024**2

CAPS = {
    "asynchronous": "computes asynchronously",
    "host_buffer": "pinned host memory",
    "buffer_from_host_ptr": "existing memory as a buffer",
    "events": "events",
    "mmap_support": "mapped files",
}
"""What each of `DeviceCaps` means."""


def device_text(device: DeviceSummary) -> str:
    """Its name and every fact of it, a line each."""
    lines = [f"  {name:<17}{words}" for name, words in device_facts(device)]
    return "\n".join([device.name, *lines])


def device_facts(device: DeviceSummary) -> list[tuple[str, str]]:
    """Every fact as a name and words; a line without a name goes on with the one before."""
    facts = [
        ("description", device.description),
        ("type", device.type.value),
        ("memory", _memory(device)),
        ("can", caps_words(device.caps)),
        *(("buffer type", _buffer_type(buft)) for buft in device.bufts),
        ("device id", device.device_id or NONE),
    ]
    if device.features:
        facts.append(("features", features_words(device.features)))
    if device.origin is not None:
        facts += _origin(device.origin, device.reg, device.reg_index)
    return facts


def _memory(device: DeviceSummary) -> str:
    if not device.memory_total:
        return "none reported"
    source = f" ({device.memory_source})" if device.memory_source else ""
    return f"{_mib(device.memory_free)} MiB free{source} of {_mib(device.memory_total)} MiB"


def caps_words(caps: DeviceCaps) -> str:
    """What it can, in words."""
    return ", ".join(words for name, words in CAPS.items() if getattr(caps, name)) or NONE


def features_words(features: tuple[tuple[str, str], ...]) -> str:
    """What its family says of itself: "AVX2, F16C, LANES = 8"."""
    return ", ".join(name if value == "1" else f"{name} = {value}" for name, value in features)


def _buffer_type(buft: BufferTypeSummary) -> str:
    size = "any size" if buft.max_bytes is None else f"at most {_mib(buft.max_bytes)} MiB at once"
    host = ", host memory" if buft.is_host else ""
    return f"{buft.name} ({buft.use}): aligned to {buft.alignment} bytes, {size}{host}"


def _origin(origin: Origin, reg: str, reg_index: int) -> list[tuple[str, str]]:
    score = "" if origin.score is None else f", score {origin.score}"
    lines = [
        f"{origin.linkage.value}, from {origin.place}",
        f"option {origin.option}, by default {origin.default}; decided by: {origin.decided_by}",
        f"{origin.symbol}, API version {origin.api_version}{score}",
        f"registered as {reg}, backend {reg_index}",
    ]
    n_others = sum(attempt.path != origin.place for attempt in origin.attempts)
    if n_others:
        paths = "path" if n_others == 1 else "paths"
        lines.append(f"{n_others} other {paths} tried for it: the load report has them")
    return [("how it got here" if i == 0 else "", line) for i, line in enumerate(lines)]


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.2f}"
