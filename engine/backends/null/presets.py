"""Facts of devices as real backends report them (SCHED.md 4, oracle/registry)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backends.null.rules import BlasRules, CpuRules
from engine.core.devices import (
    CPU_BUFT,
    CUDA_MIN_BATCH,
    BufferTypeFacts,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
    TableRules,
)
from engine.core.repack import CPU_REPACK, RECORDED_FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


def cpu(name: str, free_bytes: int) -> DeviceFacts:
    """A present x86 server: reads every kind of host memory, takes everything."""
    return DeviceFacts(
        name=name,
        description="a CPU on paper",
        type=DeviceType.CPU,
        reg="CPU",
        buft=CPU_BUFT,
        rules=CpuRules(
            bufts=frozenset({CPU_BUFT.name, CPU_REPACK.name}),
            host_bufts=True,
            features=RECORDED_FEATURES,
        ),
        memory_free=free_bytes,
        memory_total=free_bytes,
        caps=DeviceCaps(buffer_from_host_ptr=True),
        features=RECORDED_FEATURES,
        extra_bufts=(CPU_REPACK,),
    )


def blas(name: str, free_bytes: int) -> DeviceFacts:
    """An accelerator for large products, in the CPU's memory."""
    return DeviceFacts(
        name=name,
        description="BLAS on paper",
        type=DeviceType.ACCEL,
        reg="BLAS",
        buft=CPU_BUFT,
        rules=BlasRules(bufts=frozenset({CPU_BUFT.name}), host_bufts=True),
        memory_free=free_bytes,
        memory_total=free_bytes,
        caps=DeviceCaps(buffer_from_host_ptr=True),
    )


def plain(name: str, free_bytes: int) -> DeviceFacts:
    """A GPU without any extra: no events, no pinned memory, no offload."""
    return DeviceFacts(
        name=name,
        description="a GPU on paper",
        type=DeviceType.GPU,
        reg="NULL",
        buft=BufferTypeFacts(name, alignment=128),
        rules=TableRules(bufts=frozenset({name})),
        memory_free=free_bytes,
        memory_total=free_bytes,
    )


def rpc(name: str, free_bytes: int) -> DeviceFacts:
    """A GPU behind ggml's RPC: asynchronous, with events, no pinned memory, no offload."""
    return replace(
        plain(name, free_bytes),
        description="an RPC server on paper",
        reg="RPC",
        buft=BufferTypeFacts(name, alignment=32),
        caps=DeviceCaps(asynchronous=True, events=True),
    )


def cuda(name: str, free_bytes: int) -> DeviceFacts:
    """A CUDA card: pinned memory, events, offload from 32 rows on, quantised rows padded to 512.

    Two of them copy to one another without the host.
    """
    return replace(
        _card(name, free_bytes),
        description="a CUDA card on paper",
        reg="CUDA",
        buft=BufferTypeFacts(name, alignment=128, pad_row_elems=512),
        host_buft=BufferTypeFacts("CUDA_Host", alignment=32, is_host=True),
        copies_async=True,
    )


def vulkan(name: str, free_bytes: int) -> DeviceFacts:
    """A Vulkan card: pinned memory, events, offload from 32 rows on, buffers up to 1 GiB."""
    gib = 1024 * MIB
    return replace(
        _card(name, free_bytes),
        description="a Vulkan card on paper",
        reg="Vulkan",
        buft=BufferTypeFacts(name, alignment=16, max_bytes=gib),
        host_buft=BufferTypeFacts("Vulkan_Host", alignment=64, max_bytes=gib, is_host=True),
    )


def _card(name: str, free_bytes: int) -> DeviceFacts:
    """What CUDA and Vulkan cards have in common."""
    return replace(
        plain(name, free_bytes),
        rules=TableRules(bufts=frozenset({name}), offload_min_batch=CUDA_MIN_BATCH),
        caps=DeviceCaps(asynchronous=True, host_buffer=True, events=True),
    )


PRESETS: dict[str, Callable[[str, int], DeviceFacts]] = {
    "cpu": cpu,
    "blas": blas,
    "plain": plain,
    "rpc": rpc,
    "cuda": cuda,
    "vulkan": vulkan,
}
