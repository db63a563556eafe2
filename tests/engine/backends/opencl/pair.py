"""Two devices that are parts of one, split memory on both, and matrices in it."""

from __future__ import annotations

from engine.backends.opencl.device import OpenClDevice, make_devices
from engine.backends.opencl.row_buffer import RowBufferType
from engine.core.devices import BufferFacts, BufferUsage, RowShares
from engine.core.rows import split_memory
from engine.core.tensor import Tensor, shape4


def two_devices(opencl, found):
    """The device in two parts; one that cannot be divided stands for two, in one context."""
    devices, _ = make_devices(opencl, (found,), 32, n_parts=2)
    first = devices[0]
    if len(devices) > 1:
        return devices[:2]
    return first, OpenClDevice(opencl, "OpenCL1", found, first.context, offload_min_batch=32)


def split_type(*devices: OpenClDevice, shares, main=0):
    """Split memory of some devices whose products `devices[main]` computes."""
    facts = split_memory(
        devices[main].facts, RowShares(tuple(d.name for d in devices), tuple(shares))
    )
    return RowBufferType(devices[main], facts, {d.name: d for d in devices})


def matrix(buft, tensor_type, k, n_rows, name="w"):
    """A weight in split memory."""
    home = BufferFacts(buft.facts, BufferUsage.WEIGHTS)
    return Tensor(tensor_type, shape4(k, n_rows), name=name, buffer=home)
