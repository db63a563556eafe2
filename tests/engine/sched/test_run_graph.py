"""The rewritten graph: a node that is its own source is so after it was made anew."""

from engine.core.ops import Op
from engine.core.plan import Batch
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import ENCODER

PAPER = ("G:gpu:8192", "CPU:cpu:16384")


def casts(nodes):
    return [node for node in nodes if node.op is Op.CPY and len(node.src) == 2]


def test_a_cast_reads_itself_and_not_the_node_it_was_made_from(tmp_path):
    with made_header(tmp_path, "bert", **ENCODER) as file:
        planner = planner_of(file, PAPER, n_gpu_layers=2, flash_attn="on")
        plan = planner.plan(Batch.PROMPT, planner.run_shape(5, 0)).plan

    made = casts(plan.run.nodes)
    assert len(made) == 4
    assert all(node.src[1] is node for node in made)
    assert not set(made) & set(casts(plan.graph.nodes))
