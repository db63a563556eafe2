"""The references give what llama.cpp computed, node by node."""

import numpy as np
import pytest

from engine.core.ops import UnaryOp
from engine.gguf.reader import open_gguf
from engine.opcheck import reference, reference_recurrent
from tests.oracle import golden
from tests.oracle.recorded_nodes import RecordedNodes

LARGEST_ERROR = 5e-6
"""Of the largest value of a node."""


def of_node(node, sources):
    """What the reference makes of a node's recorded sources."""
    shape = tuple(node.ne[::-1])
    match node.op:
        case "SSM_CONV":
            return reference_recurrent.ssm_conv(*sources)
        case "SSM_SCAN":
            return reference_recurrent.ssm_scan(*sources)
        case "GATED_DELTA_NET":
            return reference_recurrent.gated_delta_net(*sources)
        case "SOFTPLUS":
            return reference.unary(UnaryOp.SOFTPLUS, *sources)
        case "SIGMOID":
            return reference.unary(UnaryOp.SIGMOID, *sources)
        case "NORM":
            return reference.norm(*sources, node.float_param(0))
        case "CONCAT":
            return reference.concat(*sources, node.params[0] if node.params else 0)
        case "REPEAT":
            return reference.repeat(*sources, shape)
        case "FILL":
            return reference.fill(shape, node.float_param(0))
    return None


def error_of(ours, recorded):
    """The largest difference, of the largest finite value; infinities must be the same."""
    ours, recorded = ours.reshape(recorded.shape), recorded.astype(np.float64)
    finite = np.isfinite(recorded)
    assert np.array_equal(ours[~finite], recorded[~finite])
    if not finite.any():
        return 0.0
    return np.abs(ours - recorded)[finite].max() / max(np.abs(recorded)[finite].max(), 1e-30)


@pytest.mark.big_set
@pytest.mark.parametrize("batch", ["fa0", "fa1", "tg-fa0", "tg-fa1"])
@pytest.mark.parametrize(
    ("model", "ops"),
    [
        ("mamba", {"SSM_CONV", "SSM_SCAN", "CONCAT"}),
        ("falcon-h1", {"SSM_CONV", "SSM_SCAN", "CONCAT"}),
        ("qwen35", {"SSM_CONV", "GATED_DELTA_NET", "SOFTPLUS", "SIGMOID", "CONCAT"}),
        ("gemma4-moe", {"REPEAT"}),
        ("gptneox", {"NORM"}),
        ("deepseek2-nomla", {"CONCAT", "REPEAT"}),
        ("glm4moe", {"SIGMOID"}),
    ],
)
def test_a_reference_gives_the_recorded_values(model, ops, batch):
    folder = golden.path(f"arch/numeric/{model}/nodes-{batch}")
    met = set()
    with open_gguf(golden.path(f"arch/models/{model}.gguf")) as file:
        recorded = RecordedNodes(folder, file)
        for node in recorded.nodes:
            if node.op not in ops:
                continue
            ours = of_node(node, recorded.sources(node))
            met.add(node.op)
            error = error_of(ours, recorded.value(node.key))
            assert error <= LARGEST_ERROR, f"{node.index} {node.op} {node.name}: {error:.2g}"
        recorded.close()

    assert met == ops
