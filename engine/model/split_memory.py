"""The split memory of a model's devices, where -sm row asks for it. Pure.

Source: SCHED.md 6 (end), llama-model.cpp make_gpu_buft_list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.rows import shares_among, split_memory
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import BufferTypeFacts, DeviceFacts


def split_memories(
    devices: Sequence[DeviceFacts], weights: Sequence[float]
) -> dict[str, BufferTypeFacts]:
    """The split memory of each device by its name; `weights[i]` is the share of `devices[i]`.

    Devices of one family hold rows for one another. Raises PlacementError, as llama.cpp does, when
    a device has no such memory.
    """
    for device in devices:
        if not device.splits_rows:
            raise PlacementError(
                f"-sm row needs split memory, and {device.name} has none.",
                f"The rows of a matrix cannot be divided among {device.reg} devices. llama.cpp "
                f'stops too: "device {device.name} does not support split buffers".',
                "Choose -sm layer, or other devices (-dev).",
            )
    return {
        device.name: split_memory(device, shares_among(devices, weights, device.reg))
        for device in devices
        if _has_share(device, devices, weights)
    }


def _has_share(
    device: DeviceFacts, devices: Sequence[DeviceFacts], weights: Sequence[float]
) -> bool:
    """Whether its family holds any rows; else it has no layers either."""
    return any(
        weight > 0 and mate.reg == device.reg for mate, weight in zip(devices, weights, strict=True)
    )
