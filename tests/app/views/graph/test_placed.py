import numpy as np

from app.views.graph.columns import shape_of
from app.views.graph.placed import AlikeRun, alike_runs, changed, matching_nodes, placed
from engine.core.diff import diff_plans
from engine.core.options import FlashAttn, Options
from engine.core.table import table_of_set
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from tests.app.models.paper_run import devices, plans
from tests.oracle import golden


def shown(plan):
    shape = shape_of(plan, 30)
    return shape, placed(plan, shape)


def test_rows_add_up_to_the_plan():
    plan = plans().prompt

    _, now = shown(plan)

    assert now.splits_of_row.sum() == len(plan.splits) == 321
    assert now.copied_of_row.sum() == plan.copied_bytes
    assert list(now.splits_of_row[:4]) == [1, 12, 11, 11]


def test_bars_carry_every_byte_that_is_copied():
    plan = plans().prompt

    _, now = shown(plan)

    assert now.copied.sum() == plan.copied_bytes
    assert now.cut.sum() == len(plan.splits)
    assert not now.copied[~now.cut].any()


def test_middle_layers_are_alike_and_the_last_is_not():
    _, now = shown(plans().prompt)

    assert alike_runs(now.same_as_previous, 1) == (AlikeRun(2, 30), AlikeRun(30, 31))
    assert alike_runs(now.same_as_previous, 5)[:3] == (
        AlikeRun(1, 2),
        AlikeRun(2, 5),
        AlikeRun(6, 30),
    )


def test_a_difference_agrees_with_the_engine():
    was, now_plan = plans().prompt, plans(op_offload=False).prompt
    shape, now = shown(now_plan)

    change = changed(was, now, shape)

    truth = diff_plans(was, now_plan)
    assert change.moved_of_row.sum() == len(truth.moved) == 724
    assert change.splits_of_row.sum() == truth.splits_now - truth.splits_was
    assert change.copied_of_row.sum() == truth.copied_bytes_now - truth.copied_bytes_was
    moved = {node.now_node_id for node in truth.moved}
    assert set(shape.node_id[change.moved].tolist()) <= moved
    assert (change.bar == -1).sum() - (change.bar == 1).sum() == 319


def test_no_difference_between_a_plan_and_itself():
    plan = plans().prompt
    shape, now = shown(plan)

    change = changed(plan, now, shape)

    assert not change.moved.any()
    assert not change.bar.any()
    assert np.array_equal(change.was_device, now.device)


def without_flash_attention():
    options = Options(n_gpu_layers=2, n_ctx=512, flash_attn=FlashAttn.OFF)
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        return table_of_set(make_planner(file, devices(), options).plan_set()).prompt


def test_graphs_that_differ_are_matched_by_name():
    was, now_plan = plans().prompt, without_flash_attention()
    shape, now = shown(now_plan)

    change = changed(was, now, shape)

    ids = matching_nodes(was, now_plan)
    known = np.flatnonzero(ids >= 0)
    names = [now_plan.name[now_plan.slot(int(i))] for i in known[:50]]
    assert names == [was.name[was.slot(int(ids[i]))] for i in known[:50]]
    new = shape.node_id[change.was_device < 0]
    assert "kq_soft_max-0" in {now_plan.name[now_plan.slot(int(i))] for i in new}
