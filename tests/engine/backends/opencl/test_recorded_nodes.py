"""Every node of recorded graphs, each by itself: recorded sources in, the recorded result out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.backends.opencl.rules import OpenClRules
from engine.core.ops import Op
from tests.engine.backends.opencl.numbers import NMSE
from tests.oracle.recorded_graph import CASES, error_of, recorded_graph, strided

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from tests.engine.backends.opencl.conftest import Bench

pytestmark = [pytest.mark.gpu, pytest.mark.big_set]

REFUSED = {
    **dict.fromkeys(("mamba", "falcon-h1"), frozenset({Op.SSM_CONV, Op.SSM_SCAN})),
    **dict.fromkeys(("qwen35", "qwen35moe"), frozenset({Op.SSM_CONV, Op.GATED_DELTA_NET})),
}
"""Model -> operations that are left to another device; of other models none are."""


def read(bench: Bench, node: Tensor) -> np.ndarray:
    raw = np.empty(node.n_bytes, np.uint8)
    place = bench.split.place_of(node)
    place.buffer.get_tensor(place.offset, raw)
    return strided(node, raw).astype(np.float32)


@pytest.mark.parametrize(("model", "batch"), CASES, ids=[".".join(case) for case in CASES])
def test_every_node_gives_what_llama_cpp_computed(every_bench, model, batch):
    bench = every_bench
    rules = OpenClRules("OpenCL0")
    with recorded_graph(model, batch) as recorded:
        graph = recorded.graph
        computed = [i for i in recorded.working if rules.supports_op(graph.nodes[i])]
        nodes = [recorded.alone(i) for i in computed]
        bench.values.update(recorded.bytes)
        bench.run(*nodes)
        errors = {
            f"{i} {graph.nodes[i]!r}": error_of(
                node, read(bench, node), recorded.values.value(f"n{i}")
            )
            for i, node in zip(computed, nodes, strict=True)
        }
        left = {graph.nodes[i].op for i in set(recorded.working) - set(computed)}

    assert left == REFUSED.get(model, frozenset())
    assert {name: error for name, error in errors.items() if not error <= NMSE} == {}
