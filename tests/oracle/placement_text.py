"""Plans as GGML_SCHED_DEBUG=2 prints them, and the dumps of a log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.core.tensor import Flag, Tensor

if TYPE_CHECKING:
    from engine.core.placement import Split
    from engine.core.plan import Plan

MIB = 2**20


def size_text(n_bytes: int) -> str:
    """A size as the log prints it: whole MiB from 1 MiB up, else whole KiB."""
    return f"{n_bytes // MIB}M" if n_bytes >= MIB else f"{n_bytes // 1024}K"


def render(plan: Plan) -> list[str]:
    """The lines of one dump."""
    return _Dump(plan).lines()


class _Dump:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tensors = (*plan.graph.leafs, *plan.graph.nodes)
        assignment = plan.trace.cut.assignment
        self.where = {
            tensor: f"[{plan.backends[backend_id].name} {cause.tag}]"
            for tensor, backend_id, cause in zip(
                self.tensors, assignment.backend_ids, assignment.causes, strict=False
            )
        }
        self.uses: dict[Tensor, int] = {}
        for node in plan.graph.nodes:
            for source in node.src:
                self.uses[source] = self.uses.get(source, 0) + 1

    def lines(self) -> list[str]:
        lines = []
        for split in self.plan.trace.cut.splits:
            lines.append(self._split(split))
            lines.extend(
                self._node(node_id)
                for node_id in range(split.start, split.stop)
                if not self.plan.graph.nodes[node_id].is_view_op
            )
        return [line.rstrip() for line in lines]

    def _split(self, split: Split) -> str:
        inputs = " ".join(
            f"[{self.tensors[copy.slot].name} ({size_text(copy.n_bytes):>5.5s})]"
            for copy in split.inputs
        )
        name = self.plan.backends[split.backend_id].name
        head = f"## SPLIT #{split.id}: {name} # {len(split.inputs)} inputs"
        return f"{head}: {inputs}" if inputs else head

    def _node(self, node_id: int) -> str:
        node = self.plan.graph.nodes[node_id]
        parts = [
            f"node #{node_id:3d} ({node.op_desc:>10.10s}): {_sized(node)} {self.where[node]} "
            f"use={self.uses.get(node, 0)},c={int(bool(node.flags & Flag.COMPUTE))}:"
        ]
        for i_src, source in enumerate(node.src):
            copy_id = self.plan.trace.cut.redirects.get((node_id, i_src))
            if copy_id is None:
                parts.append(f"{_sized(source)} {self.where[source]}")
            else:
                copy = self.plan.trace.cut.copies[copy_id].tensors[self.plan.copy_slot]
                parts.append(f"{_sized(copy)} [NULL 4.cpy]")
        return " ".join(parts)


def _sized(tensor: Tensor) -> str:
    return f"{tensor.name:>20.20s} ({size_text(tensor.n_bytes):>5.5s})"


def dumps(log: str) -> list[list[str]]:
    """The dumps of a log, in order; any line but an empty one ends them."""
    found: list[list[str]] = []
    is_open = False
    for line in log.splitlines():
        if line.startswith("## SPLIT #0:"):
            found.append([])
            is_open = True
        is_open = is_open and bool(re.match(r"## SPLIT #\d+:|node #|$", line))
        if is_open and line:
            found[-1].append(line.rstrip())
    return found
