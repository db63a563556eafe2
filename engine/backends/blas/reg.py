"""The BLAS backend's registration: one accelerator that works in the CPU's memory."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from engine.backend.computer import physical_cores
from engine.backend.host_buffer import HostBuffer, HostBufferType
from engine.backend.interface import BackendReg, Device
from engine.backends.blas.library import library_name
from engine.backends.blas.rules import BlasRules
from engine.core.devices import (
    CPU_BUFT,
    BufferTypeFacts,
    BufferUsage,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
    Unavailable,
)
from engine.core.options import BlasUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backend.interface import Backend, BufferType, Bytes

NAME = "BLAS"

THREADS_PACKAGE = "threadpoolctl"


def create() -> BackendReg:
    """The family, with a device if numpy has a BLAS; ImportError without threadpoolctl."""
    if importlib.util.find_spec(THREADS_PACKAGE) is None:
        raise ModuleNotFoundError(name=THREADS_PACKAGE)
    return BlasReg(library_name())


class BlasReg(BackendReg):
    """One device, or none where `library`, the words for numpy's BLAS, is empty."""

    name = NAME

    def __init__(self, library: str) -> None:
        self._devices = (BlasDevice(self, library),) if library else ()

    def devices(self) -> tuple[Device, ...]:
        """The accelerator."""
        return self._devices

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Why there is none."""
        if self._devices:
            return ()
        reason = "numpy was built without a BLAS library"
        return (Unavailable(NAME, reason, "Install numpy from PyPI: it brings OpenBLAS."),)

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """`ggml_backend_set_n_threads`."""
        return _set_n_threads if name == "ggml_backend_set_n_threads" else None


class BlasDevice(Device):
    """Numpy's BLAS. It reports no memory: what it works in is the CPU's."""

    def __init__(self, reg: BackendReg, library: str) -> None:
        self.reg = reg
        self._library = library
        self._buffer_type = HostBufferType(CPU_BUFT)

    @property
    def facts(self) -> DeviceFacts:
        """Facts of this moment; it is used only by choice."""
        rules = {use: BlasRules(use) for use in (BlasUse.AUTO, BlasUse.ALL)}
        return DeviceFacts(
            name=NAME,
            description=f"{self._library}, used with --blas auto or all",
            type=DeviceType.ACCEL,
            reg=NAME,
            buft=CPU_BUFT,
            rules=rules[BlasUse.ALL],
            caps=DeviceCaps(buffer_from_host_ptr=True),
            rules_by_use=rules,
        )

    def init_backend(self) -> Backend:
        """A stream on as many threads as the processor has cores."""
        # What it imports takes a moment and is not needed to plan.
        from engine.backends.blas.backend import BlasBackend

        return BlasBackend(self, physical_cores())

    def buffer_type(self) -> BufferType:
        """The CPU's memory."""
        return self._buffer_type

    def buffer_from_host_ptr(self, memory: Bytes, name: str) -> HostBuffer:
        """A mapped file as a buffer; nothing is copied."""
        facts = BufferTypeFacts(name, alignment=CPU_BUFT.alignment, is_host=True)
        return HostBuffer(facts, memory, BufferUsage.ANY)


def _set_n_threads(backend: Backend, n_threads: int) -> None:
    """Compute on so many threads from the next split on."""
    from engine.backends.blas.backend import BlasBackend

    assert isinstance(backend, BlasBackend), backend
    backend.set_n_threads(n_threads)
