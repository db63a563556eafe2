"""The CPU backend's registration: one device, ordinary memory. Imports no compiler."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from engine.backend.computer import cpu_model, memory_bytes, memory_source, physical_cores
from engine.backend.host_buffer import HostBuffer, HostBufferType
from engine.backend.interface import BackendReg, Device
from engine.backends.cpu.repack import RepackBufferType
from engine.backends.cpu.rules import CpuRules
from engine.core.devices import (
    CPU_BUFT,
    BufferTypeFacts,
    BufferUsage,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
)
from engine.core.repack import CPU_REPACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backend.interface import Backend, BufferType, Bytes


def create() -> BackendReg:
    """The CPU family."""
    return CpuReg()


class CpuReg(BackendReg):
    """One device: the processor of this computer."""

    name = "CPU"

    def __init__(self) -> None:
        self._devices = (CpuDevice(self),)

    def devices(self) -> tuple[Device, ...]:
        """The processor."""
        return self._devices

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """`ggml_backend_set_n_threads` and `ggml_backend_get_features`."""
        functions: dict[str, Callable[..., Any]] = {
            "ggml_backend_set_n_threads": _set_n_threads,
            "ggml_backend_get_features": _get_features,
        }
        return functions.get(name)


class CpuDevice(Device):
    """The processor, with the computer's memory."""

    def __init__(self, reg: BackendReg) -> None:
        self.reg = reg
        self._buffer_type = HostBufferType(CPU_BUFT)
        self._extra_buffer_types = (RepackBufferType(),)

    @property
    def facts(self) -> DeviceFacts:
        """Facts of this moment."""
        free, total = memory_bytes()
        return DeviceFacts(
            name="CPU",
            description=_description(),
            type=DeviceType.CPU,
            reg="CPU",
            buft=CPU_BUFT,
            rules=CpuRules(_features()),
            memory_free=free,
            memory_total=total,
            caps=DeviceCaps(buffer_from_host_ptr=True),
            features=_features(),
            extra_bufts=(CPU_REPACK,),
            memory_source=memory_source(),
        )

    def init_backend(self) -> Backend:
        """A stream on as many threads as the processor has cores."""
        # numba takes a moment to import and is not needed to plan.
        from engine.backends.cpu.backend import CpuBackend

        return CpuBackend(self, physical_cores())

    def buffer_type(self) -> BufferType:
        """Ordinary memory."""
        return self._buffer_type

    def extra_buffer_types(self) -> tuple[BufferType, ...]:
        """Memory for interleaved weights."""
        return self._extra_buffer_types

    def buffer_from_host_ptr(self, memory: Bytes, name: str) -> HostBuffer:
        """A mapped file as a buffer; nothing is copied."""
        facts = BufferTypeFacts(name, alignment=CPU_BUFT.alignment, is_host=True)
        return HostBuffer(facts, memory, BufferUsage.ANY)


@cache
def _description() -> str:
    return cpu_model()


@cache
def _features() -> frozenset[str]:
    # llvmlite alone, without numba; still too slow for the start of the program.
    from engine.backends.cpu.features import ggml_features

    return ggml_features()


def _set_n_threads(backend: Backend, n_threads: int) -> None:
    """Compute on so many threads from the next split on."""
    from engine.backends.cpu.backend import CpuBackend

    assert isinstance(backend, CpuBackend), backend
    backend.set_n_threads(n_threads)


def _get_features() -> dict[str, str]:
    """Feature to "1", for those the processor has."""
    return dict.fromkeys(sorted(_features()), "1")
