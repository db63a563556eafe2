"""What the system says of itself, and its devices for people."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.summary import DeviceSummary

if TYPE_CHECKING:
    from engine.core.devices import DeviceFacts


def host_memory_bytes() -> int:
    """Physical memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


@functools.cache
def physical_cores() -> int:
    """Physical cores this process may use, at least 1; as llama.cpp chooses its threads."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = set()
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        try:
            cores.add((folder / "core_cpus_list").read_text())
        except OSError:
            return usable or 1
    return max(1, min(usable or 1, len(cores) or usable or 1))


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
