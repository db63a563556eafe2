"""Which devices the memory of a plan fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.core.table import DeviceRow, PlanSetTable
    from engine.session import Session


def fits_data(plans: PlanSetTable) -> dict[str, dict[str, int | bool | None]]:
    """By device: bytes needed and free, and whether they fit; None where free is not reported."""
    fits = {
        device.name: _fit(
            plans.memory.total(device.name), device.memory_free, is_over=is_over(plans, device)
        )
        for device in plans.prompt.devices
    }
    for share in plans.memory.shares:
        fits[share.device] = _fit(share.needed_bytes, share.free_bytes, is_over=share.is_over)
    return fits


def _fit(needed: int, free: int, *, is_over: bool) -> dict[str, int | bool | None]:
    return {"needed": needed, "free": free or None, "fits": not is_over if free else None}


def is_over(plans: PlanSetTable, device: DeviceRow) -> bool:
    """Whether a device that reports its free memory has less than the plan needs there.

    One that joins others has too little where one of them has.
    """
    if device.type is DeviceType.META:
        return any(share.is_over for share in plans.memory.shares)
    return 0 < device.memory_free < plans.memory.total(device.name)


def fitting_layers(session: Session, plans: PlanSetTable) -> int | None:
    """The most layers (-ngl) that every GPU has room for; None when that is no way out.

    Bisects, each step a plan: memory grows with the number of layers.
    """
    if not _is_gpu_over(plans):
        return None
    options = plans.options
    n_most = plans.n_layers + 1
    low, high = -1, n_most if options.n_gpu_layers < 0 else min(options.n_gpu_layers, n_most)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            is_too_much = _is_gpu_over(session.plan(replace(options, n_gpu_layers=middle)))
        except UserError:
            is_too_much = True
        low, high = (low, middle) if is_too_much else (middle, high)
    return low if low >= 0 else None


def _is_gpu_over(plans: PlanSetTable) -> bool:
    devices = plans.prompt.devices
    return any(is_over(plans, d) for d in devices if d.type is not DeviceType.CPU)
