"""Whether a window can be opened. Looked at in a process of its own: Qt aborts where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys

_PROBE = "from PySide6.QtGui import QGuiApplication; QGuiApplication(['probe'])"
PATIENCE_S = 20


def no_screen() -> str:
    """Why no window can be opened; empty if one can.

    DISPLAY can be set and dead, so it is tried. A platform that was chosen by QT_QPA_PLATFORM is
    not, and a bundle cannot: its executable is the program itself.
    """
    if getattr(sys, "frozen", False):
        return ""
    if os.environ.get("QT_QPA_PLATFORM") or sys.platform in {"win32", "darwin"}:
        return ""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "neither DISPLAY nor WAYLAND_DISPLAY is set"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "the display does not answer"
    if not tried.returncode:
        return ""
    said = [line.strip() for line in tried.stderr.splitlines() if line.strip()]
    return said[0] if said else f"Qt ended with {tried.returncode}"
