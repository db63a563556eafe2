"""A model on devices that compute nothing: batches, graph reuse, stopping, what is recorded."""

import numpy as np
import pytest

from engine.backends.null.reg import NullReg
from engine.backends.null.virtual import parse_virtual
from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch
from engine.errors import ModelError, Stopped
from engine.model.context import ModelContext
from engine.model.planning import make_planner
from engine.trace.recorder import Recorder
from engine.trace.records import SpanKind, StepKind
from tests.engine.model.made import N_KV, N_VOCAB, made_file

GPU = "GPU0:gpu:8192:mmap=0,offload=32"
CPU = "CPU:cpu:16384"


class Run:
    """A loaded context of a made file; `stop` asks it to stop."""

    def __init__(self, tmp_path, **options):
        facts = [parse_virtual(line) for line in (GPU, CPU)]
        self.calls, self.plans, self.progress = [], [], []
        self.stop = False
        self.file = made_file(tmp_path)
        devices = NullReg(facts, self.calls.append).devices()
        self.recorder = Recorder()
        self.planner = make_planner(self.file, facts, Options(n_ctx=512, **options))
        self.context = ModelContext(
            self.file, self.planner, {d.facts.name: d for d in devices}, self.recorder,
            on_plan=self.plans.append, stop_address=0, stop_asked=lambda: self.stop,
        )  # fmt: skip

    def load(self):
        self.context.load(self.progress.append)
        return self

    def decode(self, n_tokens, kind=StepKind.PROMPT):
        return self.context.decode(list(range(n_tokens)), kind)

    def close(self):
        self.context.dispose()
        self.file.close()


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path, n_ubatch=64).load()
    yield made
    made.close()


def test_logits_are_a_number_for_every_token_of_the_vocabulary(run):
    logits = run.decode(3)

    assert (logits.shape, logits.dtype) == ((N_VOCAB,), np.float32)


def test_a_prompt_is_cut_into_ubatches(run):
    run.decode(150)

    assert [plan.shape.n_tokens for plan in run.plans] == [64, 22]
    assert run.context.n_past == 150


def test_a_graph_is_planned_once_while_its_shape_comes_again(run):
    run.decode(5)
    for _ in range(4):
        run.decode(1, StepKind.TOKEN)

    assert [(plan.batch, plan.shape.n_tokens) for plan in run.plans] == [
        (Batch.PROMPT, 5), (Batch.TOKEN, 1),
    ]  # fmt: skip


def test_a_longer_cache_view_needs_a_new_graph(run):
    run.decode(255)
    run.decode(1, StepKind.TOKEN)
    run.decode(1, StepKind.TOKEN)

    assert [plan.shape.n_kv for plan in run.plans[-2:]] == [256, 512]


def test_flipping_op_offload_plans_the_next_batch_anew(run):
    run.decode(1, StepKind.TOKEN)
    run.planner.op_offload = False
    run.decode(1, StepKind.TOKEN)

    assert [plan.op_offload for plan in run.plans] == [True, False]


def test_a_switch_that_turns_while_a_graph_is_planned_is_not_mistaken(run):
    plan = run.planner.plan

    def plan_after_a_turn(batch, shape):
        run.planner.op_offload, run.planner.plan = False, plan
        return plan(batch, shape)

    run.planner.plan = plan_after_a_turn
    run.decode(1, StepKind.TOKEN)
    run.planner.op_offload = True
    run.decode(1, StepKind.TOKEN)

    assert [plan.op_offload for plan in run.plans] == [False, True]


def test_a_forgotten_graph_is_told_again(run):
    run.decode(1, StepKind.TOKEN)
    run.context.forget_graph()
    run.decode(1, StepKind.TOKEN)

    assert len(run.plans) == 2


def test_a_full_context_is_refused_with_its_size(run):
    run.decode(500)

    with pytest.raises(ModelError) as caught:
        run.decode(13)

    assert caught.value.title == "The context of 512 tokens is full."
    assert caught.value.sentence == "500 tokens are in it and 13 more were to follow."


def test_a_cleared_context_begins_again(run):
    run.decode(500)

    run.context.clear()
    run.decode(500)

    assert run.context.n_past == 500


def test_stopping_keeps_the_tokens_of_finished_ubatches(run):
    run.context._on_plan = lambda plan: setattr(run, "stop", True)

    with pytest.raises(Stopped):
        run.decode(150)

    assert run.context.n_past == 64


def test_a_step_is_recorded_with_its_tokens(run):
    run.decode(5)
    run.decode(1, StepKind.TOKEN)

    steps = run.recorder.snapshot().of_kind(SpanKind.STEP)
    assert steps["bytes"].tolist() == [5, 1]
    assert steps["peer"].tolist() == [StepKind.PROMPT, StepKind.TOKEN]
    assert steps["plan_id"].tolist() == [plan.plan_id for plan in run.plans]


def test_the_worst_case_is_reserved_before_the_first_batch(run):
    run.calls.clear()

    run.decode(64)

    assert [call for call in run.calls if call.startswith("alloc_buffer")] == []


def next_inputs(tmp_path, flash_attn):
    """The run after 3 and 2 tokens, and what the host would write for two more."""
    run = Run(tmp_path, flash_attn=flash_attn).load()
    run.decode(3)
    run.decode(2)
    ready = run.context._ready
    values = run.context._input_values(np.array([7, 8], np.int32), ready)
    tensors = ready.planned.built.inputs
    run.close()
    return values, tensors


@pytest.mark.parametrize("flash_attn", [FlashAttn.ON, FlashAttn.OFF])
def test_inputs_continue_where_the_last_batch_ended(tmp_path, flash_attn):
    values, _ = next_inputs(tmp_path, flash_attn)

    assert values["inp_tokens"].tolist() == [7, 8]
    assert values["inp_pos"].tolist() == [5, 6]
    assert values["attn_inp_k_idxs"].tolist() == [5, 6]
    assert values["out_ids"].tolist() == [1]


@pytest.mark.parametrize("flash_attn", [FlashAttn.ON, FlashAttn.OFF])
def test_a_token_sees_itself_and_what_came_before(tmp_path, flash_attn):
    values, _ = next_inputs(tmp_path, flash_attn)

    mask = values["attn_inp_kq_mask"]
    assert mask.shape == (2, 256)
    assert [np.flatnonzero(row == 0).tolist() for row in mask] == [[*range(6)], [*range(7)]]
    assert np.isneginf(mask[mask != 0]).all()


@pytest.mark.parametrize("flash_attn", [FlashAttn.ON, FlashAttn.OFF])
def test_inputs_have_as_many_bytes_as_their_tensors(tmp_path, flash_attn):
    values, tensors = next_inputs(tmp_path, flash_attn)

    assert {name: value.nbytes for name, value in values.items()} == {
        name: tensors[name].n_bytes for name in values
    }


def test_without_flash_attention_each_value_is_a_row_of_its_own(tmp_path):
    values, _ = next_inputs(tmp_path, FlashAttn.OFF)

    expected = [column * 512 + cell for cell in (5, 6) for column in range(N_KV)]
    assert values["attn_inp_v_idxs"].tolist() == expected


def test_streams_end_before_the_buffers_they_use_are_released(run, monkeypatch):
    order = []
    for backend in run.context._backends:
        monkeypatch.setattr(backend, "dispose", lambda: order.append("stream"))
    for buffer in run.context._resident.buffers:
        monkeypatch.setattr(buffer, "release", lambda: order.append("buffer"))

    run.context.dispose()

    assert order == sorted(order, reverse=True)
    assert {"stream", "buffer"} == set(order)


def test_loading_tells_what_it_does(run):
    assert any(step.label.startswith("loading ") for step in run.progress)


def test_loading_stops_when_asked_to(tmp_path):
    run = Run(tmp_path)
    run.stop = True

    with pytest.raises(Stopped):
        run.load()

    run.close()


def test_a_context_computes_only_after_loading(tmp_path):
    run = Run(tmp_path)

    with pytest.raises(AssertionError, match="load"):
        run.decode(1)

    run.close()
