"""A device has to compute something right before it is offered."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import platformdirs
import pyopencl as cl

from engine.backends.opencl.programs import build_program
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backends.opencl.discovery import FoundDevice

# Vectors of 8 floats, half floats and local rounding: what the kernels rest on. Wider vectors are
# not tried: PoCL 3.0 ends the process on them.
SOURCE = """
kernel void check(global const float *x, global half *as_half, global float *y)
{
    const size_t i = get_global_id(0) * 8;
    vstore_half8_rte(vload8(0, x + i), 0, as_half + i);
    vstore8(fma(vload8(0, x + i), (float8)2.0f, vload_half8(0, as_half + i)), 0, y + i);
}
"""
N_ELEMS = 64

MAPPING_SOURCE = """
kernel void sums(global const uchar *bytes, uint n, global uint *y)
{
    uint sum = 0;
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) sum += bytes[i];
    y[get_global_id(0)] = sum;
}
"""
N_SUMS = 16
MOST_MAPPED_BYTES = 1 << 20


def check_device(found: FoundDevice) -> str:
    """Why the device cannot be used, or an empty text when a small kernel came out right."""
    try:
        got = _run(found.handle)
    except DeviceError as error:
        return f"its compiler refused a small kernel: {_first_line(error.details)}{_no_room()}"
    except cl.Error as error:
        return f"its driver refused a small kernel: {_first_line(str(error))}"
    if not np.array_equal(got, _expected()):
        return "it computed a small kernel wrong"
    return ""


def _no_room() -> str:
    """That drivers cannot keep what they compile, whereupon PoCL's fails; or an empty text."""
    named = os.environ.get("POCL_CACHE_DIR")
    folder = Path(named) if named else platformdirs.user_cache_path()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(MOST_MAPPED_BYTES))
    except OSError as error:
        return f"; {folder}, where drivers keep code, cannot be written: {error.strerror}"
    return ""


def check_mapping(found: FoundDevice) -> str:
    """Why the device cannot read a file that is mapped for reading, or an empty text.

    The file is the program that runs this; its bytes are summed up on the device and here.
    """
    with Path(sys.executable).open("rb") as stream:
        # It cannot be closed while an array of it is alive, so it ends with the last of them.
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    n_bytes = min(len(mapping), MOST_MAPPED_BYTES) // N_SUMS * N_SUMS
    mapped = np.frombuffer(mapping, np.uint8, n_bytes)
    try:
        got = _sums(found.handle, mapped)
    except DeviceError as error:
        return f"its compiler refused to read a mapped file: {_first_line(error.details)}"
    except cl.Error as error:
        return f"its driver refused a mapped file: {_first_line(str(error))}"
    expected = mapped.reshape(-1, N_SUMS).sum(axis=0, dtype=np.uint32)
    return "" if np.array_equal(got, expected) else "it read a mapped file wrong"


def _sums(
    device: cl.Device, mapped: np.ndarray[tuple[int], np.dtype[np.uint8]]
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = build_program(context, device, MAPPING_SOURCE, [], "check of mapped files")
    flags = cl.mem_flags
    source = cl.Buffer(context, flags.READ_ONLY | flags.USE_HOST_PTR, hostbuf=mapped)
    got = np.empty(N_SUMS, np.uint32)
    target = cl.Buffer(context, flags.WRITE_ONLY, got.nbytes)
    cl.Kernel(program, "sums")(queue, (N_SUMS,), None, source, np.uint32(mapped.size), target)
    cl.enqueue_copy(queue, got, target)
    for memory in (source, target):
        memory.release()
    return got


def _run(device: cl.Device) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = build_program(context, device, SOURCE, [], "self check")
    x = _input()
    flags = cl.mem_flags
    source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
    halves = cl.Buffer(context, flags.READ_WRITE, x.nbytes // 2)
    target = cl.Buffer(context, flags.WRITE_ONLY, x.nbytes)
    cl.Kernel(program, "check")(queue, (N_ELEMS // 8,), None, source, halves, target)
    got = np.empty(N_ELEMS, np.float32)
    cl.enqueue_copy(queue, got, target)
    for memory in (source, halves, target):
        memory.release()
    return got


def _input() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.linspace(-3.0, 5.0, N_ELEMS, dtype=np.float32)


def _expected() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    x = _input().astype(np.float64)
    halves = _input().astype(np.float16).astype(np.float64)
    return (x * 2.0 + halves).astype(np.float32)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
