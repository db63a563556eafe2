"""Every node of recorded graphs, each by itself: from the recorded sources to the recorded result.

Nodes are those of llama.cpp's own CPU backend, so little may differ: the order of sums, and
roundings to f16 that fall on the other side (GELU, running sums of attention).
"""

from __future__ import annotations

import pytest

from engine.backends.cpu.rules import CpuRules
from engine.core.ops import Op
from tests.oracle.recorded_graph import CASES, error_of, recorded_graph

pytestmark = pytest.mark.big_set

NMSE = 1e-8


def bar(node) -> float:
    """ARGSORT gives indices, and ties are left as ggml leaves them."""
    return 0.0 if node.op is Op.ARGSORT else NMSE


@pytest.mark.parametrize("backend", [2], indirect=True)
@pytest.mark.parametrize(("model", "batch"), CASES, ids=[".".join(case) for case in CASES])
def test_every_node_gives_what_llama_cpp_computed(backend, split, model, batch):
    with recorded_graph(model, batch) as recorded:
        nodes = {i: recorded.alone(i) for i in recorded.working}
        for leaf, raw in recorded.bytes.items():
            split.set_bytes(leaf, raw)
        refused = [node for node in nodes.values() if not CpuRules().supports_op(node)]
        assert refused == []

        split.compute(backend, *nodes.values())

        errors = {
            f"{i} {recorded.graph.nodes[i]!r}": error
            for i, node in nodes.items()
            if not (
                (error := error_of(node, split.read(node), recorded.values.value(f"n{i}")))
                <= bar(node)
            )
        }
    assert errors == {}
