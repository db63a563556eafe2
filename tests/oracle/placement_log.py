"""Render our plans as GGML_SCHED_DEBUG=2 prints them; compare with a log as strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch, BatchShape, MemoryKind, Plan, PlanSet
from engine.core.tensor import Flag, Tensor
from engine.model.planning import ModelPlanner, make_planner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.core.devices import DeviceFacts
    from engine.gguf.reader import GgufFile

MIB = 2**20


def size_text(n_bytes: int) -> str:
    """A size as the log prints it: whole MiB from 1 MiB up, else whole KiB."""
    return f"{n_bytes // MIB}M" if n_bytes >= MIB else f"{n_bytes // 1024}K"


def render(plan: Plan) -> list[str]:
    """The lines of one dump."""
    cut = plan.trace.cut
    first = len(plan.graph.leafs)
    tensors = (*plan.graph.leafs, *plan.graph.nodes)
    uses: dict[Tensor, int] = {}
    for node in plan.graph.nodes:
        for source in node.src:
            uses[source] = uses.get(source, 0) + 1
    label = {
        tensor: f"[{plan.backends[cut.assignment.backend_ids[slot]].name} "
        f"{cut.assignment.causes[slot].tag}]"
        for slot, tensor in enumerate(tensors)
    }
    lines = []
    for split in cut.splits:
        inputs = " ".join(
            f"[{tensors[c.slot].name} ({size_text(c.n_bytes):>5.5s})]" for c in split.inputs
        )
        tail = f": {inputs}" if inputs else ""
        name = plan.backends[split.backend_id].name
        lines.append(f"## SPLIT #{split.id}: {name} # {len(split.inputs)} inputs{tail}")
        for node_id in range(split.start, split.stop):
            node = plan.graph.nodes[node_id]
            if node.is_view_op:
                continue
            parts = [
                f"node #{node_id:3d} ({node.op_desc:>10.10s}): {node.name:>20.20s} "
                f"({size_text(node.n_bytes):>5.5s}) {label[node]} "
                f"use={uses.get(node, 0)},c={int(bool(node.flags & Flag.COMPUTE))}:"
            ]
            for i_src, source in enumerate(node.src):
                copy_id = cut.redirects.get((node_id, i_src))
                shown, where = source, label[source]
                if copy_id is not None:
                    shown, where = cut.copies[copy_id].tensors[0], "[NULL 4.cpy]"
                parts.append(f"{shown.name:>20.20s} ({size_text(shown.n_bytes):>5.5s}) {where}")
            lines.append(" ".join(parts))
        assert first == len(plan.graph.leafs)
    return [line.rstrip() for line in lines]


def dumps(log: str) -> list[list[str]]:
    """The dumps of a log, in order."""
    found: list[list[str]] = []
    for line in log.splitlines():
        if line.startswith("## SPLIT #0:"):
            found.append([line.rstrip()])
        elif found and re.match(r"## SPLIT #\d+:|node #", line) and found[-1]:
            found[-1].append(line.rstrip())
    return found


@dataclass
class LoggedRun:
    """What the lines of a log say of the batches whose dumps it holds."""

    shapes: list[BatchShape]

    @classmethod
    def of(cls, log: str, n_ctx: int) -> LoggedRun:
        reserved = re.findall(
            r"graph_reserve: reserving[^\n]*n_tokens = +(\d+), n_seqs = +\d+, n_outputs = +(\d+)",
            log,
        )
        shapes = [BatchShape(int(t), n_ctx, int(o)) for t, o in reserved]
        prompt = int(number_in(r"embd_inp\.size\(\): (\d+)", log))
        n_kv = min(n_ctx, max(256, -(-prompt // 256) * 256))
        shapes.append(BatchShape(prompt, n_kv, 1))
        n_kv = min(n_ctx, max(256, -(-(prompt + 1) // 256) * 256))
        shapes.append(BatchShape(1, n_kv, 1))
        return cls(shapes)


def options_of(command: str) -> Options:
    """Our options for a recorded command line."""
    words = command.split()

    def value(flag: str, default: str) -> str:
        return words[words.index(flag) + 1] if flag in words else default

    ngl = value("-ngl", "all")
    return Options(
        n_gpu_layers=-1 if ngl in ("all", "auto") else int(ngl),
        n_ctx=int(value("-c", "512")),
        n_batch=int(value("-b", "512")),
        n_ubatch=int(value("-ub", "512")),
        flash_attn=FlashAttn(value("-fa", "auto")),
        op_offload="--no-op-offload" not in words,
    )


def compare(
    file: GgufFile, devices: Sequence[DeviceFacts], command: str, log: str, summary: str
) -> list[str]:
    """Every difference between our plans and a recorded run, as sentences."""
    planner = make_planner(file, devices, options_of(command))
    return [
        *compare_dumps(planner, log),
        *compare_memory(planner.plan_set(), summary),
        *compare_counts(planner, summary),
    ]


def compare_dumps(planner: ModelPlanner, log: str) -> Iterator[str]:
    recorded = dumps(log)
    shapes = LoggedRun.of(log, planner.n_ctx).shapes
    if len(recorded) != len(shapes):
        yield f"{len(recorded)} dumps, expected {len(shapes)}"
        return
    for i_dump, (lines, shape) in enumerate(zip(recorded, shapes, strict=True)):
        batch = Batch.TOKEN if shape.n_tokens == 1 else Batch.PROMPT
        ours = render(planner.plan(batch, shape).plan)
        if len(ours) != len(lines):
            yield f"dump {i_dump}: {len(ours)} lines, recorded {len(lines)}"
        for our, their in zip(ours, lines, strict=False):
            if our != their:
                yield f"dump {i_dump}: ours     {our}\n            recorded {their}"
                break


def compare_memory(plans: PlanSet, summary: str) -> Iterator[str]:
    labels = {"model": MemoryKind.MODEL, "KV": MemoryKind.KV, "output": MemoryKind.OUTPUT}
    for label, kind in labels.items():
        recorded = re.findall(rf": +(\S+) +{label} buffer size = +([\d.]+) MiB", summary)
        ours = [
            (row.buft.name, f"{row.n_bytes / MIB:.2f}")
            for row in plans.memory.rows
            if row.kind is kind
        ]
        if ours != recorded:
            yield f"{label}: ours {ours} recorded {recorded}"
    recorded = re.findall(r"~llama_context: +(\S+) compute buffer size is +([\d.]+) MiB", summary)
    recorded = [pair for pair in recorded if float(pair[1])]
    ours = [
        (row.buft.name, f"{row.n_bytes / MIB:.4f}")
        for row in plans.memory.rows
        if row.kind is MemoryKind.COMPUTE
    ]
    if ours != recorded:
        yield f"compute: ours {ours} recorded {recorded}"


def compare_counts(planner: ModelPlanner, summary: str) -> Iterator[str]:
    prompt = planner.reserved[Batch.PROMPT].plan
    token = planner.reserved[Batch.TOKEN].plan
    for label, ours in (
        ("nodes", (len(prompt.graph.nodes), len(token.graph.nodes))),
        ("splits", (len(prompt.trace.cut.splits), len(token.trace.cut.splits))),
    ):
        words = number_in(rf"graph[^\n]*{label} = (\d+(?: / \d+)?)", summary).split(" / ")
        recorded = (int(words[0]), int(words[-1]))
        if ours != recorded:
            yield f"{label}: ours {ours} recorded {recorded}"
    offloaded = number_in(r"offloaded (\d+/\d+) layers", summary)
    n_layer = planner.hparams.n_layer + 1
    n_offloaded = min(planner.placement.n_gpu_layers, n_layer)
    if f"{n_offloaded}/{n_layer}" != offloaded:
        yield f"offloaded: ours {n_offloaded}/{n_layer} recorded {offloaded}"


def number_in(pattern: str, text: str) -> str:
    """The group of the first match; an assertion names what is not there."""
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in the recording"
    return found.group(1)
