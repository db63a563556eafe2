"""A model on devices that compute nothing: batches, graph reuse, stopping, what is recorded."""

import numpy as np
import pytest

from engine.backends.null.reg import NullBackend, NullReg
from engine.core.options import Options
from engine.core.plan import Batch
from engine.errors import DeviceError, MemoryRefusedError, ModelError, Stopped
from engine.model.batch_inputs import PlacedBatch
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.context import ModelContext
from engine.model.planning import make_planner
from engine.trace.recorder import Recorder
from engine.trace.records import SpanKind, StepKind
from tests.engine.model.limited import LimitedMachine
from tests.engine.model.made import N_VOCAB, made_file
from tests.engine.model.made_arch import made_header
from tests.engine.model.made_numbers import ENCODER, FALCON_H1, MAMBA
from tests.engine.paper import parse_virtual

GPU = "GPU0:gpu:8192:mmap=0,offload=32"
CPU = "CPU:cpu:16384"


class Run:
    """A loaded context of a made file; `stop` asks it to stop."""

    def __init__(self, tmp_path, file=None, devices=(GPU, CPU), live=None, **options):
        facts = [parse_virtual(line) for line in devices]
        self.calls, self.plans, self.progress = [], [], []
        self.stop = False
        self.file = made_file(tmp_path) if file is None else file
        on_paper = {d.facts.name: d for d in NullReg(facts, self.calls.append).devices()}
        self.recorder = Recorder()
        self.planner = make_planner(self.file, facts, Options(**{"n_ctx": 512, **options}))
        self.context = ModelContext(
            self.file, self.planner, live or on_paper, self.recorder,
            on_plan=self.plans.append, stop_address=0, stop_asked=lambda: self.stop,
            reads_weights=live is None,
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


def test_graphs_of_a_pipeline_take_one_slot_after_another(tmp_path):
    pair = ("CUDA0:gpu:8192:preset=cuda", "CUDA1:gpu:8192:preset=cuda", CPU)
    made = Run(tmp_path, devices=pair, n_ubatch=64, mmap=False).load()

    for n_tokens in (1, 2, 2, 3, 4, 5):
        made.decode(n_tokens)

    found = [(plan.shape.n_tokens, plan.n_copies, plan.copy_slot) for plan in made.plans]
    made.close()
    assert found == [(1, 4, 0), (2, 4, 1), (3, 4, 2), (4, 4, 3), (5, 4, 0)]
    slots = [call.split()[2] for call in made.calls if call.startswith("event_new CUDA1")][-4:]
    recorded = [call.split()[2] for call in made.calls if call.startswith("event_record CUDA1")]
    assert [event for event in recorded if event in slots] == [slots[i] for i in (0, 1, 1, 2, 3, 0)]


PAIR = ("CUDA0:gpu:8192:preset=cuda", "CUDA1:gpu:8192:preset=cuda", CPU)


def waits_of(calls, name):
    return [call for call in calls if call.startswith("synchronize") and name in call]


def test_ubatches_of_a_prompt_are_queued_without_waiting_for_one_another(tmp_path):
    made = Run(tmp_path, devices=PAIR, n_ubatch=32, mmap=False).load()
    made.calls.clear()

    made.decode(32 * 6)

    calls = list(made.calls)
    slots = [plan.copy_slot for plan in made.plans]
    steps = made.recorder.snapshot().of_kind(SpanKind.STEP)
    made.close()
    assert slots == [0, 1, 2, 3]  # The fifth and the sixth are the first and second again.
    assert [int(step["bytes"]) for step in steps] == [32] * 6
    assert len(waits_of(calls, "CUDA1")) <= 2  # For the logits, and at the end.


def test_one_copy_computes_one_ubatch_after_the_other(tmp_path):
    made = Run(tmp_path, devices=PAIR, n_ubatch=32, mmap=False, n_copies=1).load()

    made.decode(32 * 6)

    found = [(plan.n_copies, plan.copy_slot) for plan in made.plans]
    made.close()
    assert found == [(1, 0)]


def test_a_stop_in_a_pipeline_leaves_nothing_under_way(tmp_path):
    made = Run(tmp_path, devices=PAIR, n_ubatch=32, mmap=False).load()
    made.context._on_plan = lambda plan: setattr(made, "stop", plan.copy_slot == 1)

    with pytest.raises(Stopped):
        made.decode(32 * 6)

    assert made.context.n_past == 64
    assert not made.context._is_under_way
    made.stop = False
    made.decode(32)
    assert made.context.n_past == 96
    made.close()


class _Reset(NullBackend):
    """A stream whose device is lost with its third graph."""

    n_graphs = 0

    def graph_compute(self, graph):
        self.n_graphs += 1
        if self.n_graphs == 3:
            raise DeviceError("CUDA1 was reset while it computed.")
        return super().graph_compute(graph)

    def synchronize(self):
        if self.n_graphs >= 3:
            raise DeviceError("CUDA1 did not finish its work.")
        super().synchronize()


def test_a_device_that_is_lost_in_a_pipeline_is_told_with_its_first_error(tmp_path, monkeypatch):
    made = Run(tmp_path, devices=PAIR, n_ubatch=32, mmap=False)
    device = made.context._devices["CUDA1"]
    stream = device.init_backend()
    stream.__class__ = _Reset
    monkeypatch.setattr(device, "init_backend", lambda: stream)
    made.load()

    with pytest.raises(DeviceError, match="CUDA1 was reset"):
        made.decode(32 * 6)
    made.close()


def run_with_room(tmp_path, limits, **options):
    """A run on two devices, with real limits; weights have places only."""
    machine = LimitedMachine(PAIR, limits)
    return Run(tmp_path, devices=PAIR, live=machine.devices, n_ubatch=32, mmap=False, **options)


def test_without_memory_for_a_pipeline_there_is_none_and_it_is_said(tmp_path):
    one = run_with_room(tmp_path, {}, n_copies=1).load()
    enough = one.context._devices["CUDA1"].held_bytes
    one.close()

    made = run_with_room(tmp_path, {"CUDA1": enough}).load()
    made.decode(64)

    assert [plan.n_copies for plan in made.plans] == [1]
    assert made.context.pipeline_note == (
        "Pipeline off: no memory for 4 graphs at once. "
        "CUDA1 has no memory for the results of a batch."
    )
    assert made.context.planner.pipeline_obstacle == "there is no memory for 4 graphs at once"
    made.close()


def test_flipping_op_offload_plans_the_next_batch_anew(run):
    run.decode(1, StepKind.TOKEN)
    run.planner.op_offload = False
    run.decode(1, StepKind.TOKEN)

    assert [plan.op_offload for plan in run.plans] == [True, False]


def test_a_switch_that_turns_while_a_graph_is_planned_is_not_mistaken(run):
    plan = run.planner.plan

    def plan_after_a_turn(batch, shape, **slot):
        run.planner.op_offload, run.planner.plan = False, plan
        return plan(batch, shape, **slot)

    run.planner.plan = plan_after_a_turn
    run.decode(1, StepKind.TOKEN)
    run.planner.op_offload = True
    run.decode(1, StepKind.TOKEN)

    assert [plan.op_offload for plan in run.plans] == [False, True]


def test_a_forgotten_graph_is_told_again(run):
    run.decode(1, StepKind.TOKEN)
    run.context.tell_plans_again()
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


@pytest.fixture
def written(run):
    """What the host writes into which input, batch by batch."""
    batches = []
    set_inputs = run.context._set_inputs

    def noting(ready, tokens, taken):
        placed = PlacedBatch(tokens, run.context.n_past, run.context._cells, taken)
        batches.append(placed.values(ready.planned.built.inputs))
        set_inputs(ready, tokens, taken)

    run.context._set_inputs = noting
    return batches


def test_a_batch_continues_where_the_last_one_ended(run, written):
    for n_tokens in (3, 2):
        run.decode(n_tokens)

    positions, cells = InputKey(InputKind.POSITIONS), InputKey(InputKind.K_IDXS)
    assert [values[positions].tolist() for values in written] == [[0, 1, 2], [3, 4]]
    assert [values[cells].tolist() for values in written] == [[0, 1, 2], [3, 4]]


def test_a_cleared_context_begins_at_the_first_cell(run, written):
    run.decode(3)
    run.context.clear()
    run.decode(2)

    assert written[-1][InputKey(InputKind.K_IDXS)].tolist() == [0, 1]


def test_a_batch_that_was_stopped_leaves_its_cells_to_the_next(run, written):
    run.decode(3)
    run.context._on_plan = stop_once = Stopping()
    with pytest.raises(Stopped):
        run.decode(5)
    stop_once.is_spent = True

    run.decode(2)

    assert written[-1][InputKey(InputKind.K_IDXS)].tolist() == [3, 4]


class Stopping:
    """Stops the first time that it is told of a plan."""

    is_spent = False

    def __call__(self, plan):
        if not self.is_spent:
            raise Stopped


def test_a_sliding_part_is_used_again_and_again(tmp_path):
    numbers = {"attention__sliding_window": 16, "block_count": 6, "context_length": 2048}
    file = made_header(tmp_path, "gemma3", whole=True, **numbers)
    run = Run(tmp_path, file, n_ctx=2048, n_ubatch=64).load()

    run.decode(1000)
    run.decode(1, StepKind.TOKEN)

    shapes = [plan.shape for plan in run.plans]
    assert [(shape.n_kv, shape.n_kv_swa) for shape in shapes][-1] == (1024, 256)
    assert max(shape.n_kv_swa for shape in shapes) == 256
    assert run.context.n_past == 1001
    run.close()


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


# Recurrent states, and encoders.


@pytest.mark.parametrize(("arch", "numbers"), [("mamba", MAMBA), ("falcon-h1", FALCON_H1)])
def test_states_begin_at_zero_with_the_first_tokens_of_a_text_only(tmp_path, arch, numbers):
    run = Run(tmp_path, made_header(tmp_path, arch, whole=True, **numbers), n_ubatch=64).load()

    run.decode(100)
    run.decode(1, StepKind.TOKEN)
    run.context.clear()
    run.decode(1, StepKind.TOKEN)

    cleared = [(plan.shape.n_tokens, plan.shape.clears_state) for plan in run.plans]
    assert cleared == [(64, True), (36, False), (1, False), (1, True)]
    run.close()


@pytest.mark.parametrize(("pooling", "n_rows"), [(0, 5), (1, 1), (2, 1), (3, 1)])
def test_an_encoder_gives_a_row_a_token_or_a_row_a_text(tmp_path, pooling, n_rows):
    numbers = {**ENCODER, "pooling_type": pooling}
    run = Run(tmp_path, made_header(tmp_path, "bert", whole=True, **numbers)).load()

    rows = run.context.embed([1, 2, 3, 4, 5])

    assert (rows.shape, rows.dtype) == ((n_rows, 256), np.float32)
    run.close()


def test_texts_of_one_length_share_a_graph(tmp_path):
    run = Run(tmp_path, made_header(tmp_path, "nomic-bert", whole=True, **ENCODER)).load()

    for _ in range(3):
        run.context.embed([1, 2, 3])
    run.context.embed([1, 2, 3, 4])

    assert [plan.shape.n_tokens for plan in run.plans] == [3, 4]
    run.close()


def test_a_graph_whose_shape_comes_again_later_is_not_planned_again(run):
    planned = []
    plan = run.planner.plan
    run.planner.plan = lambda *a, **k: planned.append(a) or plan(*a, **k)

    for _ in range(3):
        run.context.clear()
        run.context.tell_plans_again()
        run.decode(5)
        run.decode(1, StepKind.TOKEN)
        run.decode(1, StepKind.TOKEN)

    assert len(planned) == 2
    ids = [plan.plan_id for plan in run.plans]
    assert ids == ids[:2] * 3


def test_a_graph_whose_memory_moved_meanwhile_is_planned_again(run):
    run.decode(5)
    run.decode(1, StepKind.TOKEN)
    run.context._scheduler._generation += 1
    run.context.clear()
    run.decode(5)

    assert [plan.shape.n_tokens for plan in run.plans] == [5, 1, 5]
    assert len({plan.plan_id for plan in run.plans}) == 3


def test_a_graph_that_comes_again_gives_the_logits_of_one_planned_anew(run):
    def logits():
        run.context.clear()
        return [run.decode(5).copy(), run.decode(1, StepKind.TOKEN).copy()]

    first, again = logits(), logits()
    run.context._kept.clear()
    run.context.tell_plans_again()
    anew = logits()

    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, anew)


def test_what_the_computer_cannot_hold_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(MemoryRefusedError) as caught:
        Run(tmp_path, devices=(GPU, "CPU:cpu:1"), n_gpu_layers=0, n_ctx=100_000)

    assert caught.value.title == "The computer does not have the memory for this."
    assert caught.value.sentence.endswith("on CPU; it has 1,048,576 in all.")
