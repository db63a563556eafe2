"""A ggml RPC server on loopback, as ggml-rpc-server is one: python serve_rpc.py FOLDER PORT.

Serves the CPU of the libraries in FOLDER until it is ended.
"""

import ctypes
import sys
from pathlib import Path

from engine.backends.ggml.kind import GgmlKind
from engine.backends.ggml.library import proc_address

START_SERVER = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)


def serve(folder: Path, port: int) -> None:
    kind = GgmlKind()
    rpc = kind.open(folder / kind.base_file("rpc"))
    cpu = kind.open(folder / kind.base_file("cpu"))
    devices = (ctypes.c_void_p * 1)(cpu.devices()[0].handle)
    start = proc_address(rpc.base, rpc.handle, "ggml_backend_rpc_start_server", START_SERVER)
    assert start is not None, folder
    start(f"127.0.0.1:{port}".encode(), None, 1, 1, devices)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
