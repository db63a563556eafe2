"""Which devices are checked, and where: those that came with Splitscope here, loaded ones apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.backends.ggml.reg import GgmlReg
from engine.core.load_report import Linkage
from engine.opcheck.apart import ApartSubject, Home
from engine.opcheck.stream import OwnStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import Device
    from engine.backend.registry import Registry
    from engine.core.summary import StopAsked
    from engine.opcheck.stream import Subject


def subjects_of(
    registry: Registry,
    names: Sequence[str],
    *,
    n_threads: int,
    in_process: bool,
    stop_asked: StopAsked,
) -> tuple[Subject, ...]:
    """The devices of these names, or all; DeviceError for a name that no device has.

    Loaded ones get a process of their own, which they may end, unless `in_process`.
    """
    devices = [registry.device(name) for name in names] if names else registry.devices()
    found: list[Subject] = []
    for device in dict.fromkeys(devices):
        home = None if in_process else home_of(registry, device, n_threads)
        found.append(
            OwnStream(device, n_threads) if home is None else ApartSubject(home, stop_asked)
        )
    return tuple(found)


def home_of(registry: Registry, device: Device, n_threads: int) -> Home | None:
    """Where a loaded device comes from; None for one that came with Splitscope."""
    reg = registry.family(device)
    origin = registry.origin(reg)
    if origin is None or origin.linkage is Linkage.STATIC:
        return None
    if isinstance(reg, GgmlReg) and reg.endpoint:
        # A server's devices come from the library that talks to it.
        name = device.facts.name
        return Home(origin.kind, reg.path, name, n_threads, endpoint=reg.endpoint)
    return Home(origin.kind, Path(origin.place), device.facts.name, n_threads)
