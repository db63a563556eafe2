"""create(): the OpenCL backend family. Imports no driver until it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.backend.interface import BackendReg, Device
from engine.backends.opencl.discovery import (
    NO_PLATFORM,
    NO_PLATFORM_HINT,
    REG_NAME,
    FoundDevice,
    find_devices,
    select,
)
from engine.core.devices import CUDA_MIN_BATCH, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

MIN_BATCH_VARIABLE = "GGML_OP_OFFLOAD_MIN_BATCH"


class OpenClReg(BackendReg):
    """The family with its devices OpenCL0, OpenCL1, ...; or without, and then with the reason."""

    name = REG_NAME

    def __init__(self) -> None:
        self._devices: tuple[Device, ...] = ()
        self._unavailable: tuple[Unavailable, ...] = ()

    def discover(self) -> None:
        """Look for devices and check each one."""
        try:
            found = find_devices()
        except ImportError as error:
            reason = f"pyopencl cannot be loaded: {error}"
            self._unavailable = (Unavailable(REG_NAME, reason, "pip install pyopencl"),)
            return
        if not found:
            self._unavailable = (Unavailable(REG_NAME, NO_PLATFORM, NO_PLATFORM_HINT),)
            return
        from engine.backends.opencl.selfcheck import check_device

        usable, self._unavailable = select(found, check_device)
        self._devices = self._make_devices(usable)

    def devices(self) -> tuple[Device, ...]:
        """The usable devices, newest platform first."""
        return self._devices

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices left out, or the family itself when there is no driver."""
        return self._unavailable

    def _make_devices(self, usable: Iterable[FoundDevice]) -> tuple[Device, ...]:
        import pyopencl as cl

        from engine.backends.opencl.device import OpenClDevice

        contexts = _one_context_per_platform(cl, tuple(usable))
        min_batch = int(os.environ.get(MIN_BATCH_VARIABLE, CUDA_MIN_BATCH))
        return tuple(
            OpenClDevice(self, f"{REG_NAME}{i}", found, context, offload_min_batch=min_batch)
            for i, (found, context) in enumerate(contexts)
        )


def create() -> OpenClReg:
    """The family, discovered; never raises for a missing driver."""
    reg = OpenClReg()
    reg.discover()
    return reg


def _one_context_per_platform(
    cl: Any, usable: tuple[FoundDevice, ...]
) -> list[tuple[FoundDevice, Any]]:
    """Each device with the context it shares, so that copies inside a platform skip the host."""
    contexts: dict[Any, Any] = {}
    for found in usable:
        platform = found.handle.platform
        if platform not in contexts:
            mates = [f.handle for f in usable if f.handle.platform == platform]
            contexts[platform] = cl.Context(mates)
    return [(found, contexts[found.handle.platform]) for found in usable]
