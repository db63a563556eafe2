"""The driver's refusals as errors for people."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyopencl as cl

from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_HINT = "Free memory on the device, or place fewer layers on it."


@contextmanager
def driver_errors(device_name: str, doing: str, hint: str = MEMORY_HINT) -> Iterator[None]:
    """Turn what the driver raises inside into a DeviceError: "OpenCL0 could not <doing>"."""
    try:
        yield
    except cl.Error as error:
        raise DeviceError(
            f"{device_name} could not {doing}.",
            "The OpenCL driver refused.",
            hint,
            details=str(error),
        ) from error
