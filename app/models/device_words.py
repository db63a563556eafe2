"""A device's facts, and how it got here, as titles and words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.device_entries import Presence, presence_words
from app.theme.text import NOTHING, SPACE, bytes_text, plural, sentence
from engine.core.device_text import CAPS, features_words
from engine.core.load_report import Linkage, Outcome

if TYPE_CHECKING:
    from app.models.device_entries import DeviceEntry
    from engine.core.load_report import Attempt, Origin
    from engine.core.summary import BufferTypeSummary, DeviceSummary

Facts = tuple[tuple[str, str], ...]
"""Titles and words; an empty title goes on with the one before."""

_USES = {"default": "its own", "host": "pinned, of the host", "extra": "for weights"}
_DECIDED = {"default": "nobody, so the default holds"}
MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class DeviceCardFacts:
    """What a card shows: what the entry is, and how it got here."""

    title: str
    subtitle: str
    facts: Facts
    got_here: Facts


def card_facts(entry: DeviceEntry) -> DeviceCardFacts:
    """Everything that is known of an entry."""
    device = entry.device
    if device is None:
        return DeviceCardFacts(entry.name, presence_words(entry), _absence(entry), ())
    subtitle = ", ".join(part for part in (device.description, device.software) if part)
    return DeviceCardFacts(entry.name, subtitle, _facts(device), _got_here(entry, device))


def memory_words(device: DeviceSummary) -> str:
    """Free of total, and how free memory was obtained."""
    if not device.memory_total:
        return "none reported"
    words = f"{bytes_text(device.memory_free)} free of {bytes_text(device.memory_total)}"
    return f"{words}: {device.memory_source}" if device.memory_source else words


def source_words(entry: DeviceEntry) -> str:
    """Where it came from, for a narrow column: "built in", or a file's name."""
    if entry.file:
        return Path(entry.file).name
    device = entry.device
    if device is None or device.origin is None:
        return "on paper" if device is not None and device.virtual else NOTHING
    return "built in" if device.origin.linkage is Linkage.STATIC else device.origin.place


def _facts(device: DeviceSummary) -> Facts:
    rows = [("Type", device.type.value), ("Memory", memory_words(device))]
    rows += [("Buffer type" if i == 0 else "", _buft(b)) for i, b in enumerate(device.bufts)]
    can = [words for name, words in CAPS.items() if getattr(device.caps, name)]
    cannot = [words for name, words in CAPS.items() if not getattr(device.caps, name)]
    rows.append(("Can", ", ".join(can) or NOTHING))
    if cannot:
        rows.append(("Cannot", ", ".join(cannot)))
    rows.append(("Device id", device.device_id or "none said"))
    if device.features:
        rows.append(("Features", features_words(device.features)))
    return tuple(rows)


def _buft(buft: BufferTypeSummary) -> str:
    largest = "no limit"
    if buft.max_bytes is not None:
        largest = f"at most {bytes_text(buft.max_bytes)} at once"
    parts = [
        _USES.get(buft.use, buft.use),
        f"aligned to {buft.alignment}{SPACE}B",
        largest,
        *(["host memory"] if buft.is_host else []),
    ]
    return f"{buft.name}: {', '.join(parts)}"


def _absence(entry: DeviceEntry) -> Facts:
    rows = [("Why", sentence(entry.why)), ("What to do", entry.hint)]
    if entry.presence is Presence.NOT_LOADED:
        rows.append(("File", entry.key))
    return tuple((title, words) for title, words in rows if words)


def _got_here(entry: DeviceEntry, device: DeviceSummary) -> Facts:
    plan = ("In this plan", _plan_words(entry))
    origin = device.origin
    if origin is None:
        on_paper = "on paper: it stands in plans only" if device.virtual else "not known"
        return (plan, ("From", on_paper))
    return (plan, *_origin(origin, device), *_attempts(origin))


def _plan_words(entry: DeviceEntry) -> str:
    if entry.presence is Presence.CHOSEN:
        return f"chosen, backend {entry.backend_id}; a lower number has priority"
    if entry.presence is Presence.REGISTERED:
        return "no plan is shown"
    words = f"left out: {entry.why}" if entry.why else "left out"
    return f"{words}. {entry.hint}" if entry.hint else words


def _origin(origin: Origin, device: DeviceSummary) -> Facts:
    is_static = origin.linkage is Linkage.STATIC
    linked = "static: it came with Splitscope" if is_static else "dynamic: loaded from a library"
    version = f"API version {origin.api_version}"
    score = "" if origin.score is None else f", score {origin.score}"
    rows = (
        ("Option", f"{origin.option}; on this system the default is {origin.default}"),
        ("Decided by", _DECIDED.get(origin.decided_by, origin.decided_by)),
        ("Linked", linked),
        ("Module" if is_static else "From", origin.place),
        ("Symbol", f"{origin.symbol or NOTHING}, {version}{score}"),
        ("Registered", f"as {device.reg}, family {device.reg_index}"),
    )
    return tuple((title, words) for title, words in rows if words)


def _attempts(origin: Origin) -> Facts:
    """The paths that were tried for it: those with something there, and how many have nothing."""
    found = [attempt for attempt in origin.attempts if attempt.outcome is not Outcome.NOT_FOUND]
    found.sort(key=lambda attempt: (attempt.path != origin.place, -(attempt.score or 0)))
    rows = [_attempt(attempt) for attempt in found[:MAX_ATTEMPTS]]
    n_more = len(found) - len(rows)
    if n_more > 0:
        rows.append(f"{plural(n_more, 'more file')}: see the load report")
    n_nothing = len(origin.attempts) - len(found)
    if n_nothing:
        rows.append(f"{plural(n_nothing, 'path')} with nothing there")
    return tuple(("Tried" if i == 0 else "", words) for i, words in enumerate(rows))


def _attempt(attempt: Attempt) -> str:
    score = "" if attempt.score is None else f", score {attempt.score}"
    return f"{Path(attempt.path).name}: {attempt.outcome.value}{score}"
