"""Render our graphs as the recorded node lists have them: tables of one line a node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from engine.core.ops import (
    ArgsortParams,
    ClampParams,
    FillParams,
    FlashAttnParams,
    GluOp,
    GluParams,
    MatmulParams,
    NormParams,
    Op,
    OpParams,
    Precision,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from tests.engine.paper import parse_virtual

if TYPE_CHECKING:
    from pathlib import Path

    from engine.core.graph import Graph
    from engine.core.tensor import Tensor


STATEFUL = (Op.SSM_SCAN, Op.GATED_DELTA_NET)
"""They have one snapshot of their states, which the recording counts."""

KIND_IDS: dict[str, int] = {
    GluOp.GEGLU: 1,
    GluOp.SWIGLU: 2,
    UnaryOp.TANH: 4,
    UnaryOp.SIGMOID: 7,
    UnaryOp.GELU: 8,
    UnaryOp.SILU: 10,
    UnaryOp.SOFTPLUS: 15,
}
"""ggml's numbers of what a GLU and a UNARY compute."""


class NodeLine(NamedTuple):
    """A node as both lists have it; sources are names joined by semicolons."""

    node_id: int
    op: str
    name: str
    type: str
    ne: tuple[int, ...]
    nb: tuple[int, ...]
    sources: str


def planned_graph(file: Path, n_tokens: int, *, flash_attn: bool, n_ctx: int = 512) -> Graph:
    """Our graph of one batch on a CPU alone; a single token follows a prompt."""
    options = Options(n_ctx=n_ctx, flash_attn=FlashAttn.ON if flash_attn else FlashAttn.OFF)
    with open_gguf(file) as opened:
        planner = make_planner(opened, [parse_virtual("CPU:cpu:24105")], options)
        batch = Batch.TOKEN if n_tokens == 1 else Batch.PROMPT
        shape = planner.run_shape(n_tokens, n_past=int(n_tokens == 1))
        return planner.plan(batch, shape).plan.graph


def node_lines(graph: Graph) -> list[NodeLine]:
    """Our nodes, in the columns of nodes.tsv."""
    return [
        NodeLine(
            i, node.op_desc, node.name, node.type.label, node.ne, node.nb,
            ";".join(source.name for source in node.src),
        )
        for i, node in enumerate(graph.nodes)
    ]  # fmt: skip


def recorded_lines(table: str) -> list[NodeLine]:
    """The nodes of a nodes.tsv."""
    found = []
    for line in table.splitlines():
        field = [part.strip() for part in line.split("\t")]
        sources = field[-1].removeprefix("src=").rstrip(";")
        op, name, label = field[1:4]
        ne, nb = _ints(field[4]), _ints(field[5])
        found.append(NodeLine(int(field[0]), op, name, label, ne, nb, sources))
    return found


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def graph_lines(graph: Graph) -> list[str]:
    """Our nodes with true sources and parameters, in the words of arch/graphs."""
    ids = {node: f"n{i}" for i, node in enumerate(graph.nodes)}
    lines = []
    for i, node in enumerate(graph.nodes):
        # The recording does not know a node that is its own source.
        sources = " ".join(
            "?" if source is node else ids.get(source, source.name) for source in node.src
        )
        ne = list(node.ne)
        while len(ne) > 1 and ne[-1] == 1:
            ne.pop()
        shape = f"[{','.join(map(str, ne))}]"
        params = _params_text(node)
        if node.op is Op.VIEW and node.view_offs:
            params = f"+{node.view_offs} {params}"
        line = f"{i} {node.op_desc} {node.name} {node.type.label} {shape} <- {sources} {params}"
        lines.append(" ".join(line.split()))
    return lines


def recorded_graph_lines(text: str) -> list[str]:
    """The nodes of a text of arch/graphs, with single spaces between words."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _params_text(node: Tensor) -> str:
    if node.op is Op.PERMUTE:
        return _axes_text(node)
    if node.op is Op.VIEW:
        offset = node.view_offs - node.src[0].view_offs
        return f"{{{offset}}}" if offset else ""
    if node.op in STATEFUL:
        return "{1}"
    text = _numbers_text(node.params)
    return f"{{{text}}}" if text else ""


def _axes_text(node: Tensor) -> str:
    """Where each dimension of the source went."""
    (source,) = node.src
    places = list(zip(node.ne, node.nb, strict=True))
    axes = []
    for dimension in zip(source.ne, source.nb, strict=True):
        place = next(i for i, p in enumerate(places) if p == dimension and i not in axes)
        axes.append(place)
    return f"{{{','.join(map(str, axes))}}}"


def _numbers_text(params: OpParams) -> str:
    """The parameters that are not zero, as the recording has them."""
    match params:
        case NormParams(eps):
            return f"{eps:g}"
        case ScaleParams(scale, bias):
            return f"{scale:g},{bias:g}" if bias else f"{scale:g}" if scale else ""
        case ClampParams(low, high):
            return f"{low:g},{high:g}"
        case ArgsortParams(descending):
            return "1" if descending else ""
        case MatmulParams(precision):
            return str(int(precision)) if precision is not Precision.DEFAULT else ""
        case SoftMaxParams(scale):
            return f"{scale:g}"
        case FlashAttnParams(scale, max_bias, softcap, precision):
            return f"{scale:g},{max_bias:g},{softcap:g},prec={int(precision)}"
        case FillParams(value):
            return f"{value:g}"
        case GluParams(GluOp.SWIGLU_OAI, alpha, limit):
            return f"{alpha:g},{limit:g}"
        case GluParams(kind) | UnaryParams(kind):
            return str(KIND_IDS[kind])
        case RopeParams():
            sections = [n for n in params.sections if n]
            return (
                f"n_dims={params.n_dims},mode={params.mode},n_ctx_orig={params.n_ctx_orig},"
                f"{params.freq_base:g},{params.freq_scale:g},{params.ext_factor:g},"
                f"{params.attn_factor:g},{params.beta_fast:g},{params.beta_slow:g}"
                + (f",sections={sections}" if sections else "")
                + (f",offset={params.offset}" if params.offset else "")
            )
    return ""
