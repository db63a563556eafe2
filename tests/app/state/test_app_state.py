"""One setter, one signal; the shown plan follows the batch, and the newest of plan and run."""

from dataclasses import replace

import pytest

from app.state.app_state import AppState, DiffMode, RunInfo, Selection
from engine.core.options import PoolingWish
from engine.core.plan import Batch
from engine.core.summary import ModelSummary, RunState, RunSummary, StopReason
from tests.app.models import paper_run

MODEL = ModelSummary(
    path="/m/tiny.gguf", name="tiny", arch="llama", quantization="q4_1", file_bytes=9,
    weight_bytes=9, n_layers=30, n_embd=576, n_head=9, n_head_kv=3, n_vocab=49152,
    n_ctx_train=8192, tensors=(), has_chat_template=False,
)  # fmt: skip


def summary(plans) -> RunSummary:
    return RunSummary(
        "hello", (1, 2), (3,), "x", StopReason.LENGTH, 10.0, 20.0, 5, (4,),
        plans.prompt.plan_id, plans.token.plan_id, (), (),
    )  # fmt: skip


@pytest.fixture
def state(qapp):
    state = AppState()
    yield state
    state.deleteLater()


def test_the_batch_switch_changes_the_shown_plan(state):
    plans = paper_run.plans()
    state.set_plans(plans)

    state.set_batch(Batch.TOKEN)

    assert state.shown_plan is plans.token


def test_after_a_run_its_plans_are_shown_until_options_change(state):
    plans, ran = paper_run.plans(), paper_run.plans(op_offload=False)
    state.set_plans(plans)
    state.add_met_plan(ran.prompt)
    state.add_met_plan(ran.token)
    state.set_run(RunInfo(summary=summary(ran)))

    state.set_batch(Batch.TOKEN)
    assert state.shown_plan is ran.token

    state.set_plans(plans)
    state.set_batch(Batch.PROMPT)
    assert state.shown_plan is plans.prompt


def test_another_model_ends_everything_of_the_one_before_at_once(state):
    plans = paper_run.plans()
    state.set_plans(plans)
    state.add_met_plan(plans.prompt)
    state.set_batch(Batch.TOKEN)
    state.set_run(RunInfo(summary=summary(plans)))
    state.set_trace(paper_run.run_on_paper(plans, 1))
    state.set_diff(DiffMode(plans, plans, "x"))
    state.select_node(3)
    seen = []
    for signal in (state.diff_changed, state.selection_changed, state.trace_changed,
                   state.run_changed, state.batch_changed, state.plans_changed,
                   state.shown_plan_changed, state.model_changed):  # fmt: skip
        signal.connect(lambda _value: seen.append(everything(state)))

    state.set_model(None)

    nothing = (None, None, None, Selection(), Batch.PROMPT, RunInfo(), None, False, {})
    assert seen == [nothing] * 8


def everything(state):
    return (
        state.plans, state.shown_plan, state.diff, state.selection, state.batch, state.run,
        state.trace, state.run_is_newest, dict(state.met_plans),
    )  # fmt: skip


def test_the_plan_that_runs_is_shown_as_soon_as_it_is_met(state):
    plans, ran = paper_run.plans(), paper_run.plans(op_offload=False)
    state.set_plans(plans)
    state.set_run(RunInfo(state=RunState.PROMPT))

    state.add_met_plan(ran.prompt)
    assert state.shown_plan is ran.prompt

    state.set_batch(Batch.TOKEN)
    assert state.shown_plan is plans.token
    state.add_met_plan(ran.token)
    assert state.shown_plan is ran.token


def test_a_difference_stays_when_a_run_meets_a_plan(state):
    plans, ran = paper_run.plans(), paper_run.plans(op_offload=False)
    state.set_plans(plans)
    state.set_run(RunInfo(state=RunState.PROMPT))
    state.set_diff(DiffMode(plans, plans, "x"))

    state.add_met_plan(ran.prompt)

    assert state.shown_plan is plans.prompt


def test_selecting_a_node_selects_its_split(state):
    plans = paper_run.plans()
    state.set_plans(plans)

    state.select_node(12)

    assert state.selection.split_id == int(plans.prompt.split[12])
    assert state.selected_node_id() == 12


def test_selecting_the_same_again_says_nothing(state, qtbot):
    with qtbot.assertNotEmitted(state.selection_changed):
        state.select(Selection())


def test_pooling_that_is_asked_for_makes_any_model_embed_and_ends_the_batch_of_a_token(state):
    plans = paper_run.plans()
    state.set_model(MODEL)
    state.set_plans(plans)
    state.set_batch(Batch.TOKEN)
    writes = (state.embeds, state.reads)

    state.set_plans(replace(plans, options=replace(plans.options, pooling=PoolingWish.LAST)))

    assert writes == (False, "prompt")
    assert (state.embeds, state.reads) == (True, "text")
    assert state.batch is Batch.PROMPT
    assert state.shown_plan is plans.prompt
