"""A device on paper from one line: `NAME:TYPE:FREE_MIB[:key=value,..]`.

TYPE is gpu, igpu, accel or cpu. Keys: preset, buft, align, max, host, async, events, cpyasync,
hostbuft, mmap, offload, ops, noops, features, split; several operations or features are joined with
`+`. They mean what they mean in the scheduler's script language: `offload=N` is CUDA's batch rule
from N on. `features` are those of a CPU, such as AVX2+FMA; `none` is none. `split=1`: its family
has split memory (-sm row).

Three more say how fast it is, for predictions: `gbps` its memory and `link` the way to any other
memory, both GB/s, `gflops` its arithmetic; they may be decimals, as in `link=0.125`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from engine.backends.null.costs import DeviceSpeed, usual_speed
from engine.backends.null.presets import MIB, PRESETS
from engine.backends.null.rules import CpuRules, SplitRules
from engine.core.devices import DeviceFacts, DeviceType, TableRules
from engine.errors import PlacementError

KEYS = (
    "preset", "buft", "align", "max", "host", "async", "events", "cpyasync", "hostbuft", "mmap",
    "offload", "ops", "noops", "features", "split", "gbps", "gflops", "link",
)  # fmt: skip

MAX_DIGITS = 13
"""Digits of the largest number a key takes; longer ones are typing mistakes."""

_TYPES = {"gpu": DeviceType.GPU, "igpu": DeviceType.IGPU, "accel": DeviceType.ACCEL}
_TYPES["cpu"] = DeviceType.CPU
_DEFAULT_PRESET = {DeviceType.CPU: "cpu", DeviceType.ACCEL: "blas"}
_WORDS = ("buft", "hostbuft", "ops", "noops", "features")
_SPEEDS = {
    "gbps": ("gbps", "GB/s"),
    "gflops": ("gflops", "GFLOP/s"),
    "link": ("link_gbps", "GB/s"),
}
"""Keys of speeds, the fields they fill, and their units."""
LEAST_SPEED = 0.001
"""Anything slower is a typing mistake."""
_DECIMAL = re.compile(r"(?=.{1,13}$)[0-9]+(\.[0-9]+)?")
"""A number as people write it, of `MAX_DIGITS` characters at most."""
_NUMBER = f"whole number of at most {MAX_DIGITS} digits"
_EXAMPLE = "For example GPU0:gpu:8192:preset=cuda"


@dataclass(frozen=True, slots=True)
class PaperDevice:
    """A device on paper: what planning may know of it, and how fast it is."""

    facts: DeviceFacts
    speed: DeviceSpeed


def parse_paper(text: str) -> PaperDevice:
    """The device that `text` describes; PlacementError says which part is wrong."""
    name, device_type, free_bytes, keys = _parts(text)
    preset = keys.pop("preset", _DEFAULT_PRESET.get(device_type, "plain"))
    if preset not in PRESETS:
        raise _wrong(text, f"The preset is {preset}; allowed are {', '.join(PRESETS)}.")
    facts = replace(PRESETS[preset](name, free_bytes), type=device_type)
    facts = _with_keys(facts, keys, text)
    if facts.splits_rows and device_type not in (DeviceType.GPU, DeviceType.IGPU):
        raise _wrong(text, "It has the key split, which only a GPU has.")
    return PaperDevice(facts, _with_speeds(usual_speed(facts), keys, text))


def _parts(text: str) -> tuple[str, DeviceType, int, dict[str, str]]:
    # A buffer type's name may hold a colon, as RPC0[127.0.0.1:50052] does.
    head = text.split(":", 3)
    if len(head) < 3 or not head[0]:
        raise _wrong(text, "It needs a name, a type and free MiB.")
    if head[1].lower() not in _TYPES:
        raise _wrong(text, f"The type is {head[1]}; allowed are {', '.join(_TYPES)}.")
    if not _is_number(head[2]):
        raise _wrong(text, f"The free memory is {head[2]}; it must be a {_NUMBER} of MiB.")
    keys: dict[str, str] = {}
    for item in filter(None, head[3].split(",") if len(head) > 3 else ()):
        key, _, value = item.partition("=")
        if key not in KEYS or not value:
            raise _wrong(
                text, f"It has {item}; allowed is key=value with a key of {', '.join(KEYS)}."
            )
        if key in keys:
            raise _wrong(text, f"It has the key {key} twice: {keys[key]} and {value}.")
        keys[key] = value
    return head[0], _TYPES[head[1].lower()], int(head[2]) * MIB, keys


def _with_keys(facts: DeviceFacts, keys: dict[str, str], text: str) -> DeviceFacts:
    counts = [key for key in keys if key not in (*_WORDS, *_SPEEDS)]
    numbers = {key: _number(keys[key], key, text) for key in counts}
    buft = facts.buft
    if "buft" in keys:
        buft = replace(buft, name=keys["buft"])
        if facts.reg == "RPC":
            facts = replace(facts, stream=keys["buft"])
    if "align" in numbers:
        if numbers["align"] < 1 or numbers["align"] & (numbers["align"] - 1):
            raise _wrong(text, f"The key align is {numbers['align']}; it must be a power of two.")
        buft = replace(buft, alignment=numbers["align"])
    if "max" in numbers:
        buft = replace(buft, max_bytes=numbers["max"] or None)
    if "host" in numbers:
        buft = replace(buft, is_host=bool(numbers["host"]))
    rules = facts.rules
    assert isinstance(rules, TableRules)
    rules = replace(rules, bufts=rules.bufts | {buft.name})
    if "offload" in numbers:
        rules = replace(rules, offload_min_batch=numbers["offload"] or None)
    if keys.get("ops", "*") != "*":
        rules = replace(rules, ops=frozenset(keys["ops"].split("+")))
    if "noops" in keys:
        rules = replace(rules, not_ops=frozenset(keys["noops"].split("+")))
    if "features" in keys:
        if not isinstance(rules, CpuRules):
            raise _wrong(text, "It has the key features, which only a CPU has.")
        features = frozenset(keys["features"].split("+")) - {"none"}
        rules = replace(rules, features=features)
        facts = replace(facts, features=features)
    return _with_caps(replace(facts, buft=buft, rules=rules), keys, numbers)


def _with_caps(facts: DeviceFacts, keys: dict[str, str], numbers: dict[str, int]) -> DeviceFacts:
    caps = facts.caps
    changes: dict[str, Any] = {}
    for key, cap in (("async", "asynchronous"), ("events", "events"), ("mmap", "mmap_support")):
        if key in numbers:
            changes[cap] = bool(numbers[key])
    host_buft = facts.host_buft
    if "hostbuft" in keys:
        host_buft = replace(facts.buft, name=keys["hostbuft"], is_host=True, pad_row_elems=0)
        changes["host_buffer"] = True
    rules = facts.rules
    if numbers.get("split"):
        assert isinstance(rules, TableRules)
        rules = SplitRules.of(rules, facts.name)
    return replace(
        facts,
        caps=replace(caps, **changes),
        rules=rules,
        host_buft=host_buft,
        copies_async=bool(numbers.get("cpyasync", facts.copies_async)),
        splits_rows=bool(numbers.get("split")),
    )


def _with_speeds(speed: DeviceSpeed, keys: dict[str, str], text: str) -> DeviceSpeed:
    given: dict[str, Any] = {
        field: _speed(keys[key], key, unit, text)
        for key, (field, unit) in _SPEEDS.items()
        if key in keys
    }
    return replace(speed, **given)


def _speed(value: str, key: str, unit: str, text: str) -> float:
    is_speed = _DECIMAL.fullmatch(value) and float(value) >= LEAST_SPEED
    if not is_speed:
        raise _wrong(
            text,
            f"The key {key} is {value}; it must be a number of {unit} from {LEAST_SPEED} on, of at "
            f"most {MAX_DIGITS} digits.",
        )
    return float(value)


def _number(value: str, key: str, text: str) -> int:
    if not _is_number(value):
        raise _wrong(text, f"The key {key} is {value}; it must be a {_NUMBER}.")
    return int(value)


def _is_number(text: str) -> bool:
    """Whether `text` is a whole number; superscripts are digits too, and no numbers."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _wrong(text: str, sentence: str) -> PlacementError:
    return PlacementError(f"The device {text!r} cannot be read.", sentence, _EXAMPLE)
