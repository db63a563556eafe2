"""GgmlDevice: a device of a library with its facts, kinds of memory and streams.

A library's CPU is an accelerator beside the built-in CPU: it reads the computer's memory as it is,
and comes first, so it computes what the built-in CPU would have, but for norms of small batches,
which llama.cpp's rule ties to the CPU of their layer. Named by `-dev` it is a device that takes
layers, as a GPU does: in memory of its own, with a copy at each border, so that a part of a model
runs on its kernels and the rest on the built-in ones.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Device
from engine.backends.ggml.backend import GgmlBackend
from engine.backends.ggml.buffer import GgmlBuffer, GgmlBufferType
from engine.backends.ggml.c_api import (
    DeviceProps,
    GetExtraBufts,
    GetFeatures,
    Object,
    SetAbortCallback,
    text,
)
from engine.backends.ggml.events import GgmlEvent
from engine.backends.ggml.library import proc_address
from engine.backends.ggml.memory import ALIGNMENT, Memory
from engine.backends.ggml.names import own_name
from engine.backends.ggml.rules import LibraryRules, Questions
from engine.core.devices import (
    CPU_BUFT,
    BufferUsage,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
)

if TYPE_CHECKING:
    from engine.backend.interface import BackendReg, BufferType, Bytes
    from engine.backends.ggml.base import Base

_TYPES = {
    0: DeviceType.CPU, 1: DeviceType.GPU, 2: DeviceType.IGPU, 3: DeviceType.ACCEL,
    4: DeviceType.META,
}  # fmt: skip
"""ggml_backend_dev_type."""

_QUEUES_COPIES = frozenset({"CUDA", "ROCm", "MUSA", "Vulkan", "MTL", "Metal", "CANN", "HTP"})
"""Families whose streams queue copies from another device; no function tells."""

RPC = "RPC"

_MEMORY = "what its library says"
_MEMORY_OF_CPU = "what its library says, which counts all memory as free"


class GgmlDevice(Device):
    """A device. `handle` is its address in the library."""

    def __init__(self, reg: BackendReg, base: Base, handle: int) -> None:
        self.reg = reg
        self.base, self.handle = base, handle
        self.memory = Memory(base)
        self._family: int = base.api.ggml_backend_dev_backend_reg(handle)
        self._questions = Questions(base)
        self._facts = self._describe(_props(base, handle))

    @property
    def name(self) -> str:
        """Its name here."""
        return self._facts.name

    @property
    def facts(self) -> DeviceFacts:
        """Facts of this moment; memory is what the library says now."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.base.api.ggml_backend_dev_memory(self.handle, ctypes.byref(free), ctypes.byref(total))
        return replace(self._facts, memory_free=free.value, memory_total=total.value)

    def init_backend(self) -> GgmlBackend:
        """A new stream."""
        return GgmlBackend(self)

    def buffer_type(self) -> BufferType:
        """Its own memory; that of the computer for an accelerator that has none."""
        return self._buffer_type

    def host_buffer_type(self) -> BufferType | None:
        """Pinned memory of the host, where the device has it."""
        return self._host_buffer_type

    def extra_buffer_types(self) -> tuple[BufferType, ...]:
        """Memory that stores weights as its kernels like them."""
        return self._extra_buffer_types

    def buffer_from_host_ptr(self, memory: Bytes, name: str) -> GgmlBuffer | None:
        """A mapped file as a buffer; nothing is copied. None where the library cannot."""
        del name
        own, start = self._buffer_type, memory.ctypes.data
        if not self._facts.caps.buffer_from_host_ptr or start % ALIGNMENT:
            return None
        if not isinstance(own, GgmlBufferType):
            return None
        handle = self.base.api.ggml_backend_dev_buffer_from_host_ptr(
            self.handle, start, memory.size, memory.size
        )
        if handle is None:
            return None
        return GgmlBuffer(own, handle, memory.size, BufferUsage.ANY, memory=memory)

    def event_new(self) -> GgmlEvent | None:
        """An event for `event_record`; None where the device has none."""
        if not self._facts.caps.events:
            return None
        handle = self.base.api.ggml_backend_event_new(self.handle)
        return None if handle is None else GgmlEvent(self.base, self._family, handle)

    def shares_events_with(self, event: GgmlEvent) -> bool:
        """Whether streams of this device can wait for an event of that one."""
        return event.family == self._family

    def watch_stop_word(self, backend: int, address: int) -> None:
        """Let a CPU's stream end between two operations when the int64 at `address` is 1.

        The library asks a function after each operation. C's strlen is one that answers 0 for a
        word that is 0 and 1 for a word that is 1, without Python; where bytes stand the other way
        round it says 0, and a wish to stop is seen before the next split.
        """
        watch = proc_address(
            self.base, self._family, "ggml_backend_set_abort_callback", SetAbortCallback
        )
        if watch is not None:
            strlen = ctypes.cast(_c_library().strlen, Object)
            watch(backend, strlen, address)

    def _describe(self, props: DeviceProps) -> DeviceFacts:
        """The facts, with all kinds of memory; called once."""
        api = self.base.api
        real_type = _TYPES.get(props.type, DeviceType.ACCEL)
        is_cpu = real_type is DeviceType.CPU
        family = own_name(text(api.ggml_backend_reg_name(self._family)))
        caps = props.caps
        self._make_buffer_types(is_cpu=is_cpu, has_host_buffer=caps.host_buffer)
        name = own_name(text(props.name))
        rules = LibraryRules(self.base, self.handle, self._questions)
        alone = LibraryRules(self.base, self.handle, self._questions, only_own_memory=True)
        host = self._host_buffer_type
        return DeviceFacts(
            name=name,
            description=text(props.description),
            type=DeviceType.ACCEL if is_cpu else real_type,
            reg=family,
            buft=self._buffer_type.facts,
            rules=rules,
            device_id=text(props.device_id) or None,
            caps=DeviceCaps(
                asynchronous=caps.asynchronous,
                host_buffer=caps.host_buffer,
                buffer_from_host_ptr=caps.buffer_from_host_ptr and self._has_own_memory,
                events=caps.events,
                mmap_support=caps.mmap_support,
            ),
            host_buft=None if host is None else host.facts,
            features=self._features(),
            stream=self._buffer_type.facts.name if family == RPC else "",
            copies_async=caps.asynchronous and family in _QUEUES_COPIES,
            extra_bufts=tuple(buft.facts for buft in self._extra_buffer_types),
            layer_rules=alone if is_cpu else None,
            memory_source=_MEMORY_OF_CPU if is_cpu else _MEMORY,
        )

    @property
    def _has_own_memory(self) -> bool:
        return isinstance(self._buffer_type, GgmlBufferType)

    def _make_buffer_types(self, *, is_cpu: bool, has_host_buffer: bool) -> None:
        api, questions = self.base.api, self._questions
        default = api.ggml_backend_dev_buffer_type(self.handle)
        is_ordinary = default == api.ggml_backend_cpu_buffer_type()
        self._buffer_type: BufferType = (
            HostBufferType(CPU_BUFT)
            if is_ordinary and not is_cpu
            else GgmlBufferType(self.base, default, questions)
        )
        pinned = api.ggml_backend_dev_host_buffer_type(self.handle) if has_host_buffer else None
        self._host_buffer_type = (
            None if pinned is None else GgmlBufferType(self.base, pinned, questions)
        )
        self._extra_buffer_types = tuple(
            GgmlBufferType(self.base, handle, questions, is_special=True)
            for handle in self._extra_handles()
        )

    def _extra_handles(self) -> list[int]:
        """An array of kinds of memory that ends with NULL."""
        get = proc_address(
            self.base, self._family, "ggml_backend_dev_get_extra_bufts", GetExtraBufts
        )
        found = None if get is None else get(self.handle)
        handles: list[int] = []
        while found and found[len(handles)]:
            handles.append(found[len(handles)])
        return handles

    def _features(self) -> frozenset[str]:
        features = read_features(self.base, self._family)
        return frozenset(name if value == "1" else f"{name}={value}" for name, value in features)


def read_features(base: Base, family: int) -> list[tuple[str, str]]:
    """What a family says that it was built for and the computer has."""
    get = proc_address(base, family, "ggml_backend_get_features", GetFeatures)
    found = None if get is None else get(family)
    features: list[tuple[str, str]] = []
    while found and found[len(features)].name is not None:
        feature = found[len(features)]
        features.append((text(feature.name), text(feature.value)))
    return features


def _props(base: Base, device: int) -> DeviceProps:
    props = DeviceProps()
    base.api.ggml_backend_dev_get_props(device, ctypes.byref(props))
    return props


def _c_library() -> ctypes.CDLL:
    """The C library, where functions such as strlen are."""
    return ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
