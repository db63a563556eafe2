"""OpenClDevice: one device with its context, its facts of the moment and what it holds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyopencl as cl

from engine.backend.computer import memory_bytes
from engine.backend.interface import Device
from engine.backends.opencl.buffer import MappedBuffer, OpenClBufferType
from engine.backends.opencl.clock import Reading, detect_clock
from engine.backends.opencl.discovery import platform_rank
from engine.backends.opencl.events import END, PROFILING, EventSource, StreamEvent, command_ns
from engine.backends.opencl.pinned import PinnedBufferType, pinned_facts
from engine.backends.opencl.platforms import parts_of
from engine.backends.opencl.programs import Programs
from engine.backends.opencl.rules import OpenClRules
from engine.backends.opencl.tuning import Tuning, tuning_for
from engine.core.devices import (
    BufferTypeFacts,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
    Unavailable,
)

if TYPE_CHECKING:
    from engine.backend.interface import BackendReg, Bytes
    from engine.backends.opencl.backend import OpenClBackend
    from engine.backends.opencl.discovery import FoundDevice

ALIGNMENT = 128
SOFTWARE = "software, shares host memory"


class OpenClDevice(Device):
    """A device of a platform; devices of one platform share `context`."""

    def __init__(
        self,
        reg: BackendReg,
        name: str,
        found: FoundDevice,
        context: cl.Context,
        *,
        offload_min_batch: int,
    ) -> None:
        self.reg = reg
        self.name = name
        self.context = context
        self.handle: cl.Device = found.handle
        self.tuning: Tuning = tuning_for(found.platform, is_cpu=found.is_cpu)
        self.programs = Programs(context, found.handle, name, self.tuning.build_options)
        self.transfer_queue = cl.CommandQueue(context, found.handle, properties=PROFILING)
        self.events = EventSource(name, detect_clock(self._read_clock))
        self._held_bytes = 0
        self._shares_memory = found.shares_memory
        self.writes_in_place = found.is_cpu and shares_finely(found.handle)
        self._facts = _describe(reg.name, name, found, OpenClRules(name, offload_min_batch))
        self._buffer_type = OpenClBufferType(self, self._facts.buft)
        pinned = self._facts.host_buft
        self._host_buffer_type = None if pinned is None else PinnedBufferType(self, pinned)

    @property
    def family(self) -> dict[str, OpenClDevice]:
        """The devices of its family by name, itself among them."""
        mates = {mate.name: mate for mate in self.reg.devices() if isinstance(mate, OpenClDevice)}
        return mates | {self.name: self}

    @property
    def can_clone(self) -> bool:
        """Whether kernel objects can be cloned: from OpenCL 2.1 on."""
        return platform_rank(self.handle.version) >= (2, 1)

    @property
    def facts(self) -> DeviceFacts:
        """Facts of this moment; free memory is an estimate, since OpenCL reports none."""
        free = self._facts.memory_total - self._held_bytes
        if self._shares_memory:
            # 0 stands for a system that does not say.
            free = min(free, memory_bytes()[0] or free)
        return replace(self._facts, memory_free=max(0, free))

    @property
    def buft_facts(self) -> BufferTypeFacts:
        """The facts of its own memory."""
        return self._facts.buft

    def init_backend(self) -> OpenClBackend:
        """A new in-order queue."""
        from engine.backends.opencl.backend import OpenClBackend

        return OpenClBackend(self)

    def buffer_type(self) -> OpenClBufferType:
        """The device's own memory."""
        return self._buffer_type

    def host_buffer_type(self) -> PinnedBufferType | None:
        """Pinned host memory, where the device has memory of its own."""
        return self._host_buffer_type

    def buffer_from_host_ptr(self, memory: Bytes, name: str) -> MappedBuffer | None:
        """A mapped file as a buffer of type `name`, where the device can use it.

        Raises: DeviceError when the driver refuses, or when the buffer would be too large for it.
        """
        if not self._facts.caps.buffer_from_host_ptr:
            return None
        return MappedBuffer(self, memory, replace(self.buft_facts, name=name))

    def event_new(self) -> StreamEvent:
        """An event for `event_record`."""
        return StreamEvent()

    def note_allocated(self, n_bytes: int) -> None:
        """Count memory that a buffer took."""
        self._held_bytes += n_bytes

    def note_released(self, n_bytes: int) -> None:
        """Count memory that a buffer gave back."""
        self._held_bytes -= n_bytes

    def _read_clock(self) -> Reading:
        """When a marker passed the device, between two readings of the host's clock."""
        before_ns = time.monotonic_ns()
        marker = cl.enqueue_marker(self.transfer_queue)
        marker.wait()
        after_ns = time.monotonic_ns()
        return before_ns, command_ns(marker, END), after_ns


def shares_finely(handle: cl.Device) -> bool:
    """Whether host and device may write to memory they share without mapping it.

    That is OpenCL 2.0's fine-grained shared virtual memory.
    """
    if platform_rank(handle.version) < (2, 0):
        return False
    return bool(handle.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)


def make_devices(
    reg: BackendReg,
    usable: tuple[FoundDevice, ...],
    offload_min_batch: int,
    *,
    n_parts: int = 1,
) -> tuple[tuple[OpenClDevice, ...], tuple[Unavailable, ...]]:
    """Devices OpenCL0, OpenCL1, ... and those whose driver refused to open them.

    Devices of one platform share a context, so that copies between them skip the host. Each CPU is
    taken as `n_parts` devices.
    """
    devices: list[OpenClDevice] = []
    usable, refused = _in_parts(usable, n_parts)
    contexts: dict[cl.Platform, cl.Context] = {}
    for found in usable:
        platform = found.handle.platform
        try:
            if platform not in contexts:
                mates = [f.handle for f in usable if f.handle.platform == platform]
                contexts[platform] = cl.Context(mates)
            devices.append(
                OpenClDevice(
                    reg,
                    f"{reg.name}{len(devices)}",
                    found,
                    contexts[platform],
                    offload_min_batch=offload_min_batch,
                )
            )
        except cl.Error as error:
            refused.append(Unavailable(found.description, f"its driver refused: {error}"))
    return tuple(devices), tuple(refused)


def _in_parts(
    usable: tuple[FoundDevice, ...], n_parts: int
) -> tuple[tuple[FoundDevice, ...], list[Unavailable]]:
    """The devices, CPUs in parts; and those that could not be divided as was asked."""
    found: list[FoundDevice] = []
    refused: list[Unavailable] = []
    for device in usable:
        try:
            parts = parts_of(device, n_parts)
        except cl.Error as error:
            found.append(device)
            reason = f"its driver refused to divide it: {error}"
            refused.append(Unavailable(f"{n_parts} parts of {device.description}", reason))
            continue
        found += parts
        if device.is_cpu and len(parts) < n_parts:
            refused.append(_fewer_parts(device, n_parts, len(parts)))
    return tuple(found), refused


def _fewer_parts(device: FoundDevice, n_parts: int, n_made: int) -> Unavailable:
    """That a processor has fewer cores than parts were asked for."""
    return Unavailable(
        f"{n_parts} parts of {device.description}",
        f"a part has one core at least, and there are {device.handle.max_compute_units}",
        f"It is taken as {n_made}.",
    )


def _describe(reg_name: str, name: str, found: FoundDevice, rules: OpenClRules) -> DeviceFacts:
    handle = found.handle
    buft = BufferTypeFacts(
        name,
        alignment=max(ALIGNMENT, handle.mem_base_addr_align // 8),
        max_bytes=handle.max_mem_alloc_size,
        is_host=False,
    )
    # A device that works in the host's memory would copy within it: pinning gains nothing there.
    pinned = None if found.shares_memory else pinned_facts(name, handle.max_mem_alloc_size)
    return DeviceFacts(
        name=name,
        description=found.description,
        type=DeviceType.GPU,
        reg=reg_name,
        buft=buft,
        rules=rules,
        memory_total=handle.global_mem_size,
        caps=DeviceCaps(
            asynchronous=True,
            host_buffer=pinned is not None,
            buffer_from_host_ptr=found.maps_files,
            events=True,
            mmap_support=True,
        ),
        host_buft=pinned,
        software=SOFTWARE if found.is_cpu else "",
        shares_memory=found.shares_memory,
        copies_async=True,
        splits_rows=True,
        memory_source="an estimate: OpenCL tells the total, and we know what we hold of it",
    )
