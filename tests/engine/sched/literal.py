"""The five passes again, written from SCHED.md 11 alone: mutable, dumb and slow.

Nothing here is shared with engine.sched: it reads tensors and device rules, and keeps ids and
causes in dicts by tensor. `copies` stands for the copy tensors: (source, backend id).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.core.devices import BufferUsage
from engine.core.ops import Op
from engine.core.tensor import Flag

if TYPE_CHECKING:
    from engine.core.devices import BackendView
    from engine.core.graph import Graph
    from engine.core.tensor import Tensor

VIEWS = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")


class CannotPlaceError(Exception):
    """What ggml aborts or asserts on."""


@dataclass
class Literal:
    graph: Graph
    backends: list[BackendView]
    op_offload: bool
    ids: dict[Tensor, int]
    causes: dict[Tensor, str] = field(default_factory=dict)
    copies: dict[tuple[Tensor, int], Any] = field(default_factory=dict)
    redirected: dict[tuple[int, int], tuple[Tensor, int]] = field(default_factory=dict)
    splits: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        for pinned in self.ids:
            self.causes[pinned] = "usr"
        self.pass1()
        self.pass2()
        self.pass3()
        self.pass4()
        self.pass5()

    def id(self, t: Tensor | None) -> int:
        return -1 if t is None else self.ids.get(t, -1)

    def op_ok(self, b: int, t: Tensor) -> bool:
        return self.backends[b].device.rules.supports_op(t)

    def buft_ok(self, b: int, buft: Any) -> bool:
        return self.backends[b].device.rules.supports_buft(buft)

    def backend_from_buffer(self, t: Tensor, op: Tensor) -> int:
        buffer = t.view_src.buffer if t.view_src is not None else t.buffer
        if buffer is None:
            return -1
        for b in range(len(self.backends)):
            if self.buft_ok(b, buffer.buft) and self.op_ok(b, op):
                return b
        return -1

    def buffer_supported(self, t: Tensor, b: int) -> bool:
        buffer = t.view_src.buffer if t.view_src is not None else t.buffer
        if buffer is not None:
            return self.buft_ok(b, buffer.buft)
        owner = self.id(t)
        if owner == -1 and t.view_src is not None:
            owner = self.id(t.view_src)
        return owner != -1 and self.buft_ok(b, self.backends[owner].buft)

    def set_if_supported(self, t: Tensor, b: int) -> None:
        if self.op_ok(b, t):
            self.ids[t] = b
            self.causes[t] = "2.sup"

    def pass1(self) -> None:
        for t in (*self.graph.leafs, *self.graph.nodes):
            if self.id(t) == -1:
                self.ids[t] = self.from_cur(t)

    def from_cur(self, t: Tensor) -> int:
        b = self.backend_from_buffer(t, t)
        if b != -1:
            self.causes[t] = "1.dst"
            return b
        if t.buffer is not None or (t.view_src is not None and t.view_src.buffer is not None):
            raise CannotPlaceError(t)
        last = len(self.backends) - 1
        if t.flags & Flag.INPUT:
            self.causes[t] = "1.inp"
            return last
        if t.op in (Op.ROPE, Op.FLASH_ATTN_EXT):
            return -1
        for j, src in enumerate(t.src):
            if src.buffer is None or src.buffer.usage is not BufferUsage.WEIGHTS:
                continue
            s = self.backend_from_buffer(src, t)
            if self.op_offload and s == last and src.buffer.buft.is_host:
                for b in range(s):
                    if self.op_ok(b, t) and self.backends[b].device.rules.offload_op(t):
                        self.causes[t] = "1.off"
                        return b
            self.causes[t] = f"1.wgt{j}"
            return s
        return -1

    def pass2(self) -> None:
        last = len(self.backends) - 1
        nodes = list(self.graph.nodes)
        for gpu_only in (True, False):
            for order in (nodes, nodes[::-1]):
                cur = -1
                for node in order:
                    if node.op in VIEWS:
                        continue
                    if self.id(node) != -1:
                        cur = self.id(node)
                        if gpu_only and cur == last:
                            cur = -1
                    elif cur != -1:
                        self.set_if_supported(node, cur)

    def pass3(self) -> None:
        for node in self.graph.nodes:
            if node.op in VIEWS:
                continue
            if self.id(node) == -1:
                most = -1
                for b in range(len(self.backends)):
                    if not self.op_ok(b, node):
                        continue
                    n = 0
                    for src in node.src:
                        placed = self.id(src) != -1 or self.id(src.view_src) != -1
                        if placed and self.buffer_supported(src, b):
                            n += 1
                    if n > most:
                        most = n
                        self.ids[node] = b
                        self.causes[node] = "3.best"
            else:
                k = self.id(node)
                for b in range(k):
                    same = self.backends[b].buft == self.backends[k].buft
                    if not same or not self.op_ok(b, node):
                        continue
                    if all(self.buffer_supported(src, b) for src in node.src):
                        self.ids[node] = b
                        self.causes[node] = "3.upg"
                        break

    def pass4(self) -> None:
        for node in self.graph.nodes:
            if node.view_src is not None and self.id(node) == -1:
                self.ids[node] = self.id(node.view_src)
                self.causes[node] = "4.vsrc"
            for src in node.src:
                if self.id(src) != -1:
                    continue
                if src.view_src is not None:
                    self.ids[src] = self.id(src.view_src)
                    self.causes[src] = "4.vsrc"
                else:
                    self.ids[src] = self.id(node)
                    self.causes[src] = "4.cur"
            if self.id(node) == -1:
                for b in range(len(self.backends)):
                    if self.id(node) == -1:
                        self.set_if_supported(node, b)
                if self.id(node) == -1:
                    raise CannotPlaceError(node)

    def pass5(self) -> None:
        nodes = self.graph.nodes
        first = next((node for node in nodes if node.op not in VIEWS), nodes[0])
        split: dict[str, Any] = {"backend": self.id(first), "start": 0, "inputs": []}
        for i, node in enumerate(nodes):
            if node.op in VIEWS:
                continue
            n = self.id(node)
            cur = split["backend"]
            need_new = False
            if n == cur and split["inputs"]:
                for src in node.src:
                    is_weight = src.buffer is not None and src.buffer.usage is BufferUsage.WEIGHTS
                    elsewhere = self.id(src) != cur and not self.buffer_supported(src, cur)
                    if is_weight and elsewhere:
                        need_new = True
            if n != cur or need_new:
                split["stop"] = i
                self.splits.append(split)
                split = {"backend": n, "start": i, "inputs": []}
                cur = n
            for j, src in enumerate(node.src):
                if self.id(src) != cur and not self.buffer_supported(src, cur):
                    if (src, cur) not in self.copies:
                        self.copies[src, cur] = object()
                        split["inputs"].append(src)
                    self.redirected[i, j] = (src, cur)
        split["stop"] = len(nodes)
        self.splits.append(split)
