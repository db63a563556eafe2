"""Where and with what a report was made."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from engine.backends.cpu.features import ggml_features, variant

if TYPE_CHECKING:
    from tests.bench.peer_builds import Peer

PACKAGES = ("numpy", "numba", "llvmlite", "pyopencl")


def facts_of(peer: Peer) -> dict[str, str]:
    """Machine, versions, date, and what llama.cpp says of itself."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    build = peer.build
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "processor": f"{processor()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
        "system": platform.platform(),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "our kernels": f"{variant()} of {' '.join(sorted(ggml_features()))}",
        "llama.cpp": "none" if build is None else f"{build.name}, ggml {build.version}",
        "why this build": peer.why,
        "its system_info": "none" if build is None else build.system_info,
    }


def processor(text: str | None = None) -> str:
    """The processor's name; `text` is another cpuinfo than this machine's."""
    if text is None:
        path = Path("/proc/cpuinfo")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
