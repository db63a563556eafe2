"""How fast a device on paper is, and what operations and copies cost there: a simple model.

An operation takes its launch and the longer of two times: that of the bytes it touches and that of
its arithmetic. A copy takes the slower of its ends; each device has one transfer at a time into its
memory and one out of it. What is not modelled: caches, kernels that suit a shape badly, contention
for memory, and the host's, which serves any number of devices at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.ops import Op

if TYPE_CHECKING:
    from engine.core.devices import DeviceFacts
    from engine.core.tensor import Tensor

HOST_GBPS = 10
"""GB/s at which the host copies within its own memory."""

HOST_LATENCY_NS = 200


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """What costs depend on. 1 GB/s is a byte a ns, 1 GFLOP/s an operation a ns.

    `link_gbps` and `link_latency_ns` are of the way between its memory and any other.
    """

    gbps: float
    gflops: float
    launch_ns: int
    link_gbps: float
    link_latency_ns: int


USUAL = DeviceSpeed(300, 8_000, launch_ns=5_000, link_gbps=8, link_latency_ns=10_000)
_BY_REG = {
    "CPU": DeviceSpeed(40, 500, launch_ns=500, link_gbps=HOST_GBPS, link_latency_ns=200),
    "BLAS": DeviceSpeed(40, 800, launch_ns=2_000, link_gbps=HOST_GBPS, link_latency_ns=200),
    "RPC": DeviceSpeed(600, 15_000, launch_ns=4_000, link_gbps=1, link_latency_ns=50_000),
    "CUDA": DeviceSpeed(900, 30_000, launch_ns=3_000, link_gbps=24, link_latency_ns=5_000),
    "Vulkan": DeviceSpeed(600, 15_000, launch_ns=4_000, link_gbps=12, link_latency_ns=10_000),
}
"""Round numbers of hardware that such a family typically drives."""


def usual_speed(facts: DeviceFacts) -> DeviceSpeed:
    """What a device of this family is taken for where nobody says more."""
    return _BY_REG.get(facts.reg, USUAL)


def node_cost_ns(node: Tensor, speed: DeviceSpeed) -> int:
    """What one operation costs."""
    busy_ns = max(_touched_bytes(node) / speed.gbps, _flops(node) / speed.gflops)
    return speed.launch_ns + round(busy_ns)


def link_cost_ns(n_bytes: int, *ends: DeviceSpeed) -> int:
    """What a copy costs between the host and a device, or between two: the slower one decides."""
    latency_ns = max(end.link_latency_ns for end in ends)
    return latency_ns + round(n_bytes / min(end.link_gbps for end in ends))


def host_cost_ns(n_bytes: int) -> int:
    """What a copy costs within the host's memory."""
    return HOST_LATENCY_NS + round(n_bytes / HOST_GBPS)


def inside_cost_ns(n_bytes: int, speed: DeviceSpeed) -> int:
    """What a copy costs within a device's memory: every byte is read and written."""
    return speed.launch_ns + round(2 * n_bytes / speed.gbps)


def _touched_bytes(node: Tensor) -> int:
    """Bytes that are read and written; of tables only the rows that are meant."""
    if node.op is Op.GET_ROWS:
        table, ids = node.src
        return _bytes(node) + _bytes(ids) + table.type.row_bytes(table.ne[0]) * node.n_rows
    if node.op is Op.SET_ROWS:
        rows, ids, table = node.src
        return _bytes(rows) + _bytes(ids) + table.type.row_bytes(table.ne[0]) * rows.n_rows
    if node.op is Op.CPY:
        return _bytes(node) + _bytes(node.src[0])
    if node.op is Op.MUL_MAT_ID:
        weights, x, ids = node.src
        n_used = min(ids.n_elems, weights.ne[2])
        used_bytes = _bytes(weights) * n_used // weights.ne[2]
        return _bytes(node) + _bytes(x) + _bytes(ids) + used_bytes
    return _bytes(node) + sum(_bytes(source) for source in node.src)


def _bytes(tensor: Tensor) -> int:
    """Bytes of its elements: of a view with gaps only those that it shows."""
    return tensor.type.row_bytes(tensor.ne[0]) * tensor.n_rows


def _flops(node: Tensor) -> int:
    """Multiplications and additions."""
    if node.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
        return 2 * node.src[0].ne[0] * node.n_elems
    if node.op is Op.FLASH_ATTN_EXT:
        q, k, v = node.src[:3]
        return 2 * k.ne[1] * (q.ne[0] + v.ne[0]) * node.n_rows
    return node.n_elems
