"""What is selected when a model opens: its first operation on the CPU, so that no pane is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.core.devices import DeviceType

if TYPE_CHECKING:
    from engine.core.table import PlanTable


def first_node(plan: PlanTable) -> int:
    """A node id: the first computed one on the CPU inside a layer, else the first computed one."""
    nodes = slice(plan.n_leafs, plan.n_leafs + plan.n_nodes)
    computed = ~plan.is_view_op[nodes]
    cpus = [i for i, device in enumerate(plan.devices) if device.type is DeviceType.CPU]
    on_cpu = computed & np.isin(plan.backend[nodes], cpus) & (plan.layer >= 0)
    found = np.flatnonzero(on_cpu) if on_cpu.any() else np.flatnonzero(computed)
    return int(found[0]) if found.size else 0
