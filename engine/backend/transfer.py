"""Blocking copies between places (SCHED.md 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from engine.backend.interface import Event, Place


def copy_bytes(source: Place, target: Place, n_bytes: int) -> Event:
    """Copy `n_bytes`; the event carries the time of the (last) transfer.

    A host source is written, a host target is read into; else the target's buffer is asked to copy
    by itself; else the bytes bounce through host memory.
    """
    source_host, target_host = source.buffer.host, target.buffer.host
    if source_host is not None:
        data = source_host[source.offset : source.offset + n_bytes]
        return target.buffer.set_tensor(target.offset, data)
    if target_host is not None:
        out = target_host[target.offset : target.offset + n_bytes]
        return source.buffer.get_tensor(source.offset, out)
    direct = target.buffer.cpy_tensor(target.offset, source, n_bytes)
    if direct is not None:
        return direct
    bounce = np.empty(n_bytes, dtype=np.uint8)
    source.buffer.get_tensor(source.offset, bounce).synchronize()
    return target.buffer.set_tensor(target.offset, bounce)
