"""What the operating system says of this computer: processor, cores, memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def cpu_model() -> str:
    """The processor's name, such as "Intel(R) Xeon(R) Processor"."""
    for line in _lines(_CPUINFO):
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "CPU"


def physical_cores() -> int:
    """Cores that this process may use, counting threads of one core once."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:
        return os.cpu_count() or 1
    cores = set()
    for i_cpu in usable:
        siblings = _lines(_TOPOLOGY / f"cpu{i_cpu}" / "topology" / "thread_siblings_list")
        cores.add(siblings[0] if siblings else str(i_cpu))
    return len(cores)


def memory_source() -> str:
    """How `memory_bytes` knows what is free."""
    free, total = memory_bytes()
    if not total:
        return "the system does not say"
    return "all of it, as ggml says it" if free == total else "MemAvailable of the system"


def memory_bytes() -> tuple[int, int]:
    """Free and total physical memory; (0, 0) where the system does not say."""
    fields = dict(line.split(":", 1) for line in _lines(_MEMINFO) if ":" in line)
    if "MemAvailable" in fields and "MemTotal" in fields:
        return _kib(fields["MemAvailable"]), _kib(fields["MemTotal"])
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0, 0
    return total, total


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
