import numpy as np

from app.models.plan_words import (
    copies_of,
    expert_copy_of,
    first_computed,
    n_computed,
    plan_of,
    split_tip,
)
from app.models.split_times import split_times
from app.state.app_state import AppState
from tests.app.models import paper_run
from tests.engine.sched.expert_run import expert_run


def test_the_first_computed_node_is_the_one_a_split_is_named_by():
    table = paper_run.plans().prompt

    firsts = first_computed(table)

    for split_id in (0, 6, 7, 99, 320):
        name = table.name[table.slot(int(firsts[split_id]))]
        assert table.split_name(split_id).startswith(name)


def test_computed_nodes_of_all_splits_are_those_of_the_plan():
    table = paper_run.plans().prompt

    assert int(n_computed(table).sum()) == table.n_computed


def test_copies_of_splits_partition_all_copies():
    table = paper_run.plans().prompt

    ids = [i for split_id in range(len(table.splits)) for i in copies_of(table, split_id)]

    assert ids == list(range(len(table.copies)))


def test_the_tip_says_why_a_split_begins_and_what_is_copied_in():
    tip = split_tip(paper_run.plans().prompt, 10)

    assert "Begins because: weight on another device" in tip
    assert "Copied in: blk.0.ffn_gate.weight, 540 KiB" in tip


def test_the_tip_of_a_split_with_experts_says_what_is_planned_and_what_was_measured():
    table, recorder = expert_run((7, 1, 5, 2))
    times = split_times(recorder.snapshot().spans(), table)

    planned, measured = split_tip(table, 0), split_tip(table, 0, times)

    assert "Copied in: up, 32 KiB for all 8 experts, only used ones copied" in planned
    assert "Measured" not in planned
    said = "Measured: 17 KiB of 32 KiB, experts 1-2, 5, 7 of 8"
    assert paper_run.words(measured) == f"{planned}\n{said}"


def test_a_split_has_one_expert_copy_at_most():
    table, _ = expert_run((7, 1))

    assert [expert_copy_of(table, split_id) for split_id in (0, 1)] == [0, 3]
    assert expert_copy_of(paper_run.plans().prompt, 10) == -1


def test_a_plan_that_the_run_met_is_found_before_the_planned_ones():
    state = AppState()
    state.set_plans(paper_run.plans())
    met = paper_run.plans(-1).prompt
    state.add_met_plan(met)

    assert plan_of(state, met.plan_id) is met
    assert plan_of(state, paper_run.plans().token.plan_id) is paper_run.plans().token
    assert plan_of(state, -5) is None


def test_all_splits_have_a_first_node_inside_them():
    table = paper_run.plans().prompt

    firsts = first_computed(table)

    assert np.all((firsts >= table.splits["start"]) & (firsts < table.splits["stop"]))
