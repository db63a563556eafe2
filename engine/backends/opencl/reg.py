"""create(): the OpenCL backend family. Imports no driver until it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.backend.interface import BackendReg, Device
from engine.backends.opencl.discovery import REG_NAME, select
from engine.core.devices import CUDA_MIN_BATCH, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backend.interface import BufferType
    from engine.backends.opencl.device import OpenClDevice
    from engine.core.devices import BufferTypeFacts

MIN_BATCH_VARIABLE = "GGML_OP_OFFLOAD_MIN_BATCH"

MOST_DIGITS = 9
"""Digits of the largest number that a variable holds; longer ones are typing mistakes."""

PARTS_VARIABLE = "SPLITSCOPE_OPENCL_PARTS"
"""Takes each CPU device as so many devices, to try several devices on a computer without a GPU."""


class OpenClReg(BackendReg):
    """The family with its devices OpenCL0, OpenCL1, ...; or without, and then with the reason."""

    name = REG_NAME

    def __init__(self) -> None:
        self._devices: tuple[OpenClDevice, ...] = ()
        self._unavailable: tuple[Unavailable, ...] = ()

    def discover(self) -> None:
        """Look for devices and check each one."""
        try:
            from engine.backends.opencl.platforms import find_devices
        except ImportError as error:
            reason = f"pyopencl cannot be loaded: {error}"
            self._unavailable = (Unavailable(REG_NAME, reason, "pip install pyopencl"),)
            return
        from engine.backends.opencl.device import make_devices
        from engine.backends.opencl.trial import check_apart

        found, nothing_there = find_devices()
        usable, left_out = select(found, lambda device: check_apart(device, found.index(device)))
        n_parts, parts_fault = number_in(PARTS_VARIABLE, 1, low=1)
        min_batch, batch_fault = number_in(MIN_BATCH_VARIABLE, CUDA_MIN_BATCH)
        self._devices, refused = make_devices(self, usable, min_batch, n_parts=n_parts)
        faults = parts_fault + batch_fault
        self._unavailable = nothing_there + left_out + refused + faults

    def devices(self) -> tuple[Device, ...]:
        """The usable devices, newest platform first."""
        return self._devices

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """The maker of split memory, in which the rows of a matrix are on several devices."""
        return self._split_buffer_type if name == "ggml_backend_split_buffer_type" else None

    def _split_buffer_type(self, device: OpenClDevice, facts: BufferTypeFacts) -> BufferType:
        """The split memory with these facts whose products `device` computes."""
        from engine.backends.opencl.row_buffer import RowBufferType

        return RowBufferType(device, facts, {mate.name: mate for mate in self._devices})

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices left out, or the family itself when there is no driver."""
        return self._unavailable


def create() -> OpenClReg:
    """The family, discovered; never raises for a missing driver."""
    reg = OpenClReg()
    reg.discover()
    return reg


def number_in(variable: str, default: int, *, low: int = 0) -> tuple[int, tuple[Unavailable, ...]]:
    """The whole number from `low` on in an environment variable, and what is wrong with it.

    `default` where there is none, or none that can be used.
    """
    text = os.environ.get(variable, "").strip()
    is_number = text.isdecimal() and len(text) <= MOST_DIGITS and int(text) >= low
    if is_number or not text:
        return int(text or default), ()
    reason = f"it must be a whole number from {low} to {10**MOST_DIGITS - 1}"
    hint = f"It is taken as {default}."
    return default, (Unavailable(f"{variable}={text}", reason, hint),)
