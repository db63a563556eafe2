"""Machine code that nobody loads any more: of an older Splitscope, or of another processor.

Every change of the kernels' sources gives their code a folder of its own, some megabytes each.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"cpu-[0-9a-f]{16}")

LOOK_AFTER_S = 24 * 3600
"""Folders are looked at no more often, so that a start costs nothing."""
KEPT_S = 30 * 24 * 3600
"""A folder that was not used for so long goes; several versions may be in use side by side."""


def tidy(own: Path) -> None:
    """Note that folder `own` is in use, and remove those beside it that were not for a month."""
    now = time.time()
    try:
        if now - own.stat().st_mtime < LOOK_AFTER_S:
            return
        os.utime(own)
        beside = [each for each in own.parent.iterdir() if _NAME.fullmatch(each.name)]
        old = [each for each in beside if now - each.lstat().st_mtime > KEPT_S]
    except OSError:
        # There is none, it may not be written, or another process is tidying.
        return
    for each in old:
        shutil.rmtree(each, ignore_errors=True)
