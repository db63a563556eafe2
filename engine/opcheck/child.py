"""The process of one device: python -m engine.opcheck.child, started by apart.py.

It reads a Home and then Orders from standard input, and writes a verdict a line, as JSON. What a
library prints goes to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
from typing import TYPE_CHECKING, BinaryIO

from engine.backends import library_kinds
from engine.errors import DeviceError
from engine.opcheck.judge import bar_of
from engine.opcheck.prepared import Exercise
from engine.opcheck.stream import OwnStream, failed

if TYPE_CHECKING:
    from engine.backend.interface import BackendReg, Device
    from engine.opcheck.apart import Home, Order


def serve(orders: BinaryIO, verdicts: BinaryIO) -> None:
    """Check what is ordered until no more comes."""
    home: Home = pickle.load(orders)
    subject: OwnStream | None = None
    while True:
        try:
            order: Order = pickle.load(orders)
        except EOFError:
            return
        try:
            subject = subject or OwnStream(find_device(home), home.n_threads)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            verdict = failed(bar_of(order.case), error)
        else:
            verdict = subject.verdict(Exercise(order.case), with_speed=order.with_speed)
        verdicts.write(json.dumps(dataclasses.asdict(verdict)).encode() + b"\n")
        verdicts.flush()


def find_device(home: Home) -> Device:
    """The device, from its library alone; DeviceError when it is not there."""
    for device in _family(home).devices():
        if device.facts.name == home.device:
            return device
    raise DeviceError(f"{home.path.name} has no device {home.device} in a process of its own.")


def _family(home: Home) -> BackendReg:
    kind = next(kind for kind in library_kinds() if kind.name == home.kind)
    reg = kind.open(home.path)
    if not home.endpoint:
        return reg
    from engine.backends.ggml import rpc

    return rpc.connect(rpc.family_of_servers([reg]), home.endpoint)


def main() -> None:
    """Serve the process that started this one."""
    # Else a library that aborts starts a debugger, whose pages hide what it said itself.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    with os.fdopen(os.dup(1), "wb") as ours:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, ours)


if __name__ == "__main__":
    main()
