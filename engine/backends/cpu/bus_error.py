"""What is said when a mapped file is cut while its bytes are read: the system ends the process.

No Python runs then: the thread that reads is in the middle of a kernel, and would be for ever. So
machine code tells and ends the process, in the words of any other error.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import sys

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import call_llvm, text_of
from engine.backends.cpu.jit import kernel
from engine.backends.cpu.simd import IntOperation, define

WORDS = (
    "\nThe engine had to end: memory that a file is mapped to could not be read.\n"
    "The model's file was cut or written over while it was used, or its disk failed (SIGBUS).\n"
    "Check the file and begin again. With --no-mmap it is read once, at the start.\n"
)
_FAILED, _STDERR = 1, 2
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _tell_and_end(b: ir.IRBuilder, _a: list[ir.Value]) -> ir.Value:
    place, n_bytes = text_of(b, "bus_error_words", WORDS)
    call_llvm(b, "write", _I64, [_I32(_STDERR), place, _I64(n_bytes)])
    call_llvm(b, "_exit", ir.VoidType(), [_I32(_FAILED)])
    return _I64(0)


_end: IntOperation = define(_tell_and_end, types.int64, types.int64)


@kernel
def _on_bus_error(number: int) -> int:
    """What the system calls with the signal's number."""
    return _end(number)


@functools.cache
def tell_of_bus_errors() -> None:
    """Have it said, once a process; where there is no such signal nothing happens."""
    if sys.platform == "win32":
        return
    system = ctypes.CDLL(None)
    system.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    system.signal.restype = ctypes.c_void_p
    system.signal(int(signal.SIGBUS), _on_bus_error.address())
