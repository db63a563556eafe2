from dataclasses import replace

import numpy as np
import pytest

from app.models.split_times import split_times
from app.views.inspector.split_facts import histogram_bins, split_facts
from engine.trace.records import SpanKind
from tests.app.models import paper_pipeline, paper_run
from tests.engine.sched.expert_run import expert_run


def facts(split_id, batch="prompt"):
    plan_set = paper_run.plans()
    table = getattr(plan_set, batch)
    times = split_times(paper_run.run_on_paper(plan_set).spans(), table)
    return split_facts(table, times, split_id)


def words(text):
    return paper_run.words(text)


def test_the_card_names_the_split_by_its_nodes_and_layer():
    assert facts(99).what == "ffn_up-8, ffn_swiglu-8 · layer 8"


def test_measured_figures_have_share_size_and_rate():
    found = facts(99)

    assert found.compute.endswith("ms")
    assert found.compute_note.endswith("% of prompt")
    assert words(found.copy_note) == "540 KiB, 5.2 GB/s"
    assert found.cut_because == "weight on another device"


def test_the_same_split_is_compared_over_all_layers():
    found = facts(99)

    assert found.alike_title == "The same split in 29 layers, n = 29"
    assert len(found.alike_ns) == 29
    assert "of the prompt" in found.total


def test_the_graphs_of_a_pipelined_prompt_are_alike_though_each_slot_has_a_plan_of_its_own():
    table = paper_pipeline.plans().prompt
    spans = paper_pipeline.run_on_paper(7).spans().copy()
    spans["plan_id"] = 100 + spans["step"] % 4
    slots = [replace(table, plan_id=100 + slot) for slot in range(4)]
    own, *others = [(plan, split_times(spans, plan)) for plan in slots]
    splits = spans[(spans["kind"] == SpanKind.SPLIT) & (spans["index"] == 1)]
    took_ns = (splits["end_ns"] - splits["start_ns"]).sum()
    steps = spans[spans["kind"] == SpanKind.STEP]
    prompt_ns = steps["end_ns"].max() - steps["start_ns"].min()

    found = split_facts(*own, 1, others=others)

    assert found.alike_title == "The same split in 7 graphs"
    assert words(found.total).endswith(f", {100 * took_ns / prompt_ns:.1f} % of the prompt.")
    share = 100 * own[1].split_ns[1] / prompt_ns
    assert words(found.compute_note) == f"{share:.2f} % of prompt"
    assert len(found.alike_ns) == 7
    assert min(found.alike_ns) <= found.own_ns <= max(found.alike_ns)


def test_a_token_split_is_a_median_and_has_no_like():
    found = facts(1, "token")

    assert "a token, median of 12" in found.compute_note
    assert found.alike_title == "No split like it, n = 12"


def test_a_split_without_copies_says_so():
    assert facts(0).copy_note == "nothing is copied in"


def test_bins_count_every_split_and_know_the_selected_one():
    found = facts(99)

    bins = histogram_bins(found.alike_ns, found.own_ns)

    assert bins.counts.sum() == 29
    assert bins.edges_ns[bins.own] <= found.own_ns <= bins.edges_ns[bins.own + 1]


def test_equal_times_still_make_a_histogram():
    bins = histogram_bins(np.full(4, 5.0), 5.0)

    assert bins.counts.sum() == 4


@pytest.fixture
def experts():
    """Return the facts of a split that experts are copied into, in a step."""
    table, recorder = expert_run((7, 1, 5, 2), (3, 1, 2, 3))
    times = split_times(recorder.snapshot().spans(), table)
    return lambda split_id, step=-1: split_facts(table, times, split_id, step=step)


def test_a_selected_step_says_which_experts_were_copied_in_it(experts):
    assert words(experts(0, 1).experts) == "1-3 of 8, 12.5 KiB, prompt step 1"


def test_without_a_step_the_experts_are_an_average(experts):
    expected = "3.5 of 8 on average over 2 steps, 14.8 KiB"

    assert words(experts(0).experts) == expected
    assert words(experts(0, 77).experts) == expected


def test_what_all_experts_would_take_has_its_basis(experts):
    found = experts(0, 0)

    assert found.whole_copy.endswith("ms")
    assert words(found.whole_note).startswith("32 KiB at ")


def test_copied_bytes_stand_beside_the_planned_ones(experts):
    """Per step 17 and 12.5 KiB of the weight, and 144 bytes of x and ids."""
    assert words(experts(0).copy_note).startswith("14.9 of 32.1 KiB, ")


def test_a_split_without_expert_copies_says_nothing_of_experts():
    found = facts(99)

    assert (found.experts, found.whole_copy, found.whole_note) == ("", "", "")
