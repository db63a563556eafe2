"""A library tried in a process of its own: python -m engine.backends.ggml.probe PATH.

It tells a Probe after each step, so that one that aborts leaves what was found out before. With
`--server HOST:PORT` it also asks a server for its devices, as libggml-rpc can.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.backend.apart import step, telling
from engine.backends.ggml.c_api import text
from engine.backends.ggml.library import (
    API_VERSION,
    INIT_SYMBOL,
    SCORE_SYMBOL,
    open_library,
    read_api_version,
)
from engine.backends.ggml.names import own_name
from engine.backends.ggml.rpc import SERVER_FLAG, add_server
from engine.core.load_report import Probe
from engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backends.ggml.base import Base
    from engine.backends.ggml.library import BackendLibrary


def find_out(path: Path, tell: Callable[[Probe], None], *, endpoint: str = "") -> None:
    """Tell what the library is; the last Probe told is the whole, each before it a `step`."""
    try:
        library = open_library(path)
    except OSError as error:
        tell(Probe(opened=False, error=str(error)))
        return
    probe = Probe(opened=True, symbols=library.symbols)
    tell(step(probe))
    if SCORE_SYMBOL in library.symbols:
        probe = replace(probe, score=library.score())
        tell(step(probe))
    if INIT_SYMBOL in library.symbols and probe.score != 0:
        probe = _with_family(library, probe, endpoint)
    tell(probe)


def _with_family(library: BackendLibrary, probe: Probe, endpoint: str) -> Probe:
    """The Probe with what the library's family says, or with why it says nothing."""
    try:
        reg = library.init()
        if reg is None:
            return replace(probe, error=f"its {INIT_SYMBOL} gives nothing")
        probe = replace(probe, api_version=read_api_version(reg))
        if probe.api_version != API_VERSION:
            return probe
        base = library.base()
        if endpoint:
            reg = add_server(base, reg, endpoint)
        return replace(probe, devices=_device_names(base, reg))
    except UserError as error:
        return replace(probe, error=str(error))


def _device_names(base: Base, reg: int) -> tuple[str, ...]:
    api = base.api
    devices = (
        api.ggml_backend_reg_dev_get(reg, i) for i in range(api.ggml_backend_reg_dev_count(reg))
    )
    return tuple(own_name(text(api.ggml_backend_dev_name(device))) for device in devices)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    # Else a library that aborts starts a debugger, whose pages hide what it said itself.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    with telling() as told:
        server = arguments[2] if arguments[1:2] == [SERVER_FLAG] else ""
        find_out(Path(arguments[0]), told, endpoint=server)
