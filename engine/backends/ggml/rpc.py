"""Devices of other machines, by a ggml-rpc-server there.

    reg = connect(rpc_reg, "192.168.1.7:50052")      # RPC0, RPC1, ... as it has devices

The library ends its process when a server does not answer as it should. So the address is tried in
a throwaway process first; a server that goes away during a run still ends the engine's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.apart import probe_apart
from engine.backends.ggml.c_api import AddServer
from engine.backends.ggml.library import API_VERSION, proc_address, refusal
from engine.backends.ggml.reg import GgmlReg
from engine.core.load_report import Linkage, Origin
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.backend.interface import BackendReg
    from engine.backends.ggml.base import Base

ADD_SERVER = "ggml_backend_rpc_add_server"
PROBE = "engine.backends.ggml.probe"
SERVER_FLAG = "--server"
START_HINT = "Start ggml-rpc-server of the same version there, and check address and port."


def takes_servers(reg: GgmlReg) -> bool:
    """Whether a family knows servers: libggml-rpc does, and has no devices of its own."""
    return proc_address(reg.base, reg.handle, ADD_SERVER, AddServer) is not None


def family_of_servers(regs: Iterable[BackendReg]) -> GgmlReg:
    """The family among `regs` that knows servers; DeviceError when none was loaded."""
    for reg in regs:
        if isinstance(reg, GgmlReg) and takes_servers(reg):
            return reg
    raise DeviceError(
        "No library that talks to RPC servers is loaded.",
        "libggml-rpc does; builds of llama.cpp have it when they were made with GGML_RPC.",
        "Load the folder that it lies in (--load).",
    )


def origin_of(endpoint: str) -> Origin:
    """How the devices behind an address got here."""
    return Origin(
        backend="rpc",
        linkage=Linkage.DYNAMIC,
        place=endpoint,
        option="--rpc",
        default="off",
        decided_by="the address that was given",
        symbol=ADD_SERVER,
        api_version=API_VERSION,
        kind="ggml",
    )


def connect(reg: GgmlReg, endpoint: str) -> GgmlReg:
    """The devices behind `endpoint`, "host:port", as a family of their own.

    Raises: DeviceError when `reg` knows no servers, or this one does not answer as one.
    """
    if not takes_servers(reg):
        raise DeviceError(
            f"{reg.name} knows no servers.", hint="Load libggml-rpc, and ask its family."
        )
    probe = probe_apart(PROBE, reg.path, SERVER_FLAG, endpoint)
    if probe.error or not probe.devices:
        raise DeviceError(
            f"The server {endpoint} cannot be used.",
            "It did not answer as a ggml RPC server with devices does.",
            START_HINT,
            probe.error,
        )
    handle = add_server(reg.base, reg.handle, endpoint)
    return GgmlReg(reg.base, handle, reg.path, endpoint=endpoint)


def add_server(base: Base, reg: int, endpoint: str) -> int:
    """The address of a server's family, the same each time.

    Ends the process where the server does not answer as it should.
    """
    function = proc_address(base, reg, ADD_SERVER, AddServer)
    handle: int | None = None if function is None else function(endpoint.encode())
    if handle is None:
        raise refusal(base, f"The server {endpoint} has no devices.", hint=START_HINT)
    return handle
