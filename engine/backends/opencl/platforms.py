"""What the installed drivers offer."""

from __future__ import annotations

from dataclasses import replace

import pyopencl as cl

from engine.backends.opencl.discovery import (
    NO_PLATFORM,
    NO_PLATFORM_HINT,
    REG_NAME,
    FoundDevice,
)
from engine.core.devices import Unavailable

KINDS = cl.device_type.GPU | cl.device_type.CPU | cl.device_type.ACCELERATOR


def find_devices() -> tuple[tuple[FoundDevice, ...], tuple[Unavailable, ...]]:
    """Devices that can build programs, in the drivers' order, and what stands in their place."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        if error.code == cl.status_code.PLATFORM_NOT_FOUND_KHR:
            return (), (Unavailable(REG_NAME, NO_PLATFORM, NO_PLATFORM_HINT),)
        reason = f"the OpenCL loader refused: {error}"
        return (), (Unavailable(REG_NAME, reason, NO_PLATFORM_HINT),)
    found: list[FoundDevice] = []
    empty: list[Unavailable] = []
    for platform in platforms:
        name = platform.name.strip()
        try:
            devices = _devices_of(platform)
        except cl.Error as error:
            empty.append(Unavailable(name, f"its driver refused: {error}"))
            continue
        found += devices
        if not devices:
            empty.append(Unavailable(name, "its driver finds no device", NO_PLATFORM_HINT))
    return tuple(found), tuple(empty)


def parts_of(found: FoundDevice, n_parts: int) -> tuple[FoundDevice, ...]:
    """A CPU device as several, each with an equal share of its cores; any other as it is.

    At most as many as it has cores. Raises what the driver says when it cannot be divided.
    """
    n_cores = int(found.handle.max_compute_units)
    n_parts = min(n_parts, n_cores)
    if not found.is_cpu or n_parts < 2:
        return (found,)
    each = n_cores // n_parts
    equally = [cl.device_partition_property.EQUALLY, each]
    handles = found.handle.create_sub_devices(equally)[:n_parts]
    cores = f"{each} of {n_cores} cores"
    return tuple(
        replace(found, handle=handle, part=f"part {i} of {n_parts} ({cores})")
        for i, handle in enumerate(handles, 1)
    )


def _devices_of(platform: cl.Platform) -> list[FoundDevice]:
    try:
        handles = platform.get_devices(KINDS)
    except cl.Error as error:
        if error.code == cl.status_code.DEVICE_NOT_FOUND:
            return []
        raise
    return [
        FoundDevice(
            platform.name.strip(),
            platform.version.strip(),
            handle.name.strip(),
            is_cpu=bool(handle.type & cl.device_type.CPU),
            shares_memory=bool(handle.host_unified_memory),
            handle=handle,
        )
        for handle in handles
        if handle.compiler_available
    ]
