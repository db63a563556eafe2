"""What a process holds, as Linux tells it. Nothing where there is no /proc."""

from __future__ import annotations

import re
from pathlib import Path

KIB = 1024
STATUS_FIELDS = ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem")
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)$")


def status_bytes(text: str | None = None) -> dict[str, int]:
    """High-water mark and parts of resident memory; `text` is another status than our own."""
    text = _own("status") if text is None else text
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: int(lines[name].split()[0]) * KIB for name in STATUS_FIELDS if name in lines}


def mapped_bytes(path: str, text: str | None = None) -> int:
    """Resident bytes of a mapped file; `text` is another smaps than our own."""
    text = _own("smaps") if text is None else text
    total, is_ours = 0, False
    for line in text.splitlines():
        mapping = _MAPPING.match(line)
        if mapping is not None:
            is_ours = mapping.group(1) == path
        elif is_ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * KIB
    return total


def above(process: dict[str, int], touched: int, planned: dict[str, int]) -> int:
    """The high-water mark above touched file pages, KV, recurrent state and compute buffers."""
    told = sum(planned[kind] for kind in ("kv", "state", "compute"))
    return process["VmHWM"] - touched - told


def touched_bytes(mapped: int, copied: int, size: int) -> int:
    """Bytes of a file that were read: what is mapped still, and what was copied and let go.

    Part of what was copied is mapped still, so that both may be more than the file has.
    """
    return min(mapped + copied, size)


def _own(name: str) -> str:
    path = Path("/proc/self") / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""
