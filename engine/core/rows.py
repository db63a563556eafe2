"""Split memory (-sm row): which device holds which rows of a matrix. Pure.

Source: SCHED.md 8.1 and 8.2; the shares and their rounding are those of ggml's split buffers
(get_row_split in ggml-sycl.cpp), which round to 1 to 128 rows by type and device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.core.devices import RowShares
from engine.core.ops import EMPTY_OPS, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.core.devices import BufferTypeFacts, DeviceFacts
    from engine.core.tensor import Tensor

ROW_ROUNDING = 16
"""Rows begin at multiples of this: 64 bytes of each column of a result, so that no two devices
write to one cache line, and whole items of the OpenCL kernels, of 4 and of 16 rows."""

SPLIT = "_Split"
"""Ends the name of split memory."""


class RowRange(NamedTuple):
    """Rows `start` to `stop` of a matrix, and the device that holds them."""

    device: str
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """How many they are, at least 1."""
        return self.stop - self.start


def split_memory(device: DeviceFacts, shares: RowShares) -> BufferTypeFacts:
    """The split memory whose products `device` computes with the help of the others."""
    return replace(device.buft, name=f"{device.name}{SPLIT}", row_shares=shares)


def rows_of(n_rows: int, shares: RowShares) -> tuple[RowRange, ...]:
    """The rows of each device, in order; devices without any are left out.

    Shares are summed in float32, as ggml sums them; the last device that has one takes the rest.
    """
    sums = np.cumsum(np.array(shares.shares, np.float32), dtype=np.float32)
    last = max(i for i, share in enumerate(shares.shares) if share > 0)
    ranges: list[RowRange] = []
    start = 0
    for i, name in enumerate(shares.devices[: last + 1]):
        stop = n_rows if i == last else int(np.float32(n_rows) * (sums[i] / sums[-1]))
        stop -= 0 if i == last else stop % ROW_ROUNDING
        if stop > start:
            ranges.append(RowRange(name, start, stop))
        start = max(start, stop)
    return tuple(ranges)


def row_bytes_of(tensors: Iterable[Tensor], buft: BufferTypeFacts) -> dict[str, int]:
    """What the rows of matrices in split memory take on each device that holds some."""
    shares = buft.row_shares
    assert shares is not None, buft
    n_bytes = dict.fromkeys(shares.devices, 0)
    for tensor in tensors:
        for held in rows_of(tensor.ne[1], shares):
            n_bytes[held.device] += piece_bytes(tensor, held, buft)
    return {name: n for name, n in n_bytes.items() if n}


def piece_bytes(tensor: Tensor, held: RowRange, buft: BufferTypeFacts) -> int:
    """What some rows of a matrix take where pieces stand one behind another."""
    return -(-held.n_rows * tensor.nb[1] // buft.alignment) * buft.alignment


def reads_split_memory(tensor: Tensor) -> bool:
    """Whether an operation reads something whose rows are on several devices."""
    return tensor.op not in EMPTY_OPS and any(_shares_of(source) for source in tensor.src)


def multiplies_rows(tensor: Tensor, device: str) -> bool:
    """Whether an operation that reads split memory is a product that `device` can share out.

    That is MUL_MAT with a whole 2-D weight there, of which the device has rows itself: ggml keeps
    matrices whole that are too small for that.
    """
    if tensor.op is not Op.MUL_MAT or _shares_of(tensor.src[1]) is not None:
        return False
    weight = tensor.src[0]
    shares = _shares_of(weight)
    is_matrix = weight.view_src is None and weight.ne[2] == weight.ne[3] == 1
    if shares is None or not is_matrix:
        return False
    return any(held.device == device for held in rows_of(weight.ne[1], shares))


def _shares_of(tensor: Tensor) -> RowShares | None:
    return None if tensor.home is None else tensor.home.buft.row_shares


def shares_among(
    devices: Sequence[DeviceFacts], weights: Sequence[float], family: str
) -> RowShares:
    """What each device of a family takes; `weights[i]` is what `devices[i]` would of a model."""
    mates = [(d.name, float(w)) for d, w in zip(devices, weights, strict=True) if d.reg == family]
    return RowShares(tuple(name for name, _ in mates), tuple(share for _, share in mates))
