"""The row of every node: 0 for "in", 1 .. n_layers for layers, n_layers + 1 for "out"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.core.table import PlanTable


def rows_of(plan: PlanTable, n_layers: int) -> npt.NDArray[np.integer[Any]]:
    """Rows by node id; a node between nodes of one layer belongs to that layer.

    A nameless layer's norm is called "norm" like the last one, so a layer number after the last
    counts only if no layer follows.
    """
    layer = plan.layer.astype(np.intp)
    later = np.minimum.accumulate(layer[::-1])[::-1]
    stray = (layer >= n_layers) & (later < n_layers)
    return np.clip(np.where(stray, later, layer), -1, n_layers) + 1
