"""Runs on devices on paper: what they would take, that devices overlap, that nothing is read."""

import dataclasses

import pytest

from engine.core.options import Options
from engine.errors import ModelError, PlacementError, Stopped
from engine.session import Session
from engine.trace.metrics import steps_of_kind, steps_summary
from engine.trace.records import MEMBER_LANE, SpanKind, StepKind
from tests.engine.encoder import encoder
from tests.engine.nano import nano, nano_with
from tests.oracle import golden

SMOLLM2 = "smollm2-135m-q4_1"
CARD = "{}:gpu:8192:preset=cuda"
CPU = "CPU:cpu:16384"
N_UBATCHES, N_UBATCH = 16, 128
SHARES = {2: (15, 16), 3: (10, 10, 11), 4: (7, 8, 8, 8)}
"""Of 30 layers and the output, which costs less than a layer: one row of it is wanted."""


@pytest.fixture
def predict():
    """Return a function that predicts; sessions are closed at the end."""
    sessions = []

    def call(path, lines, n_prompt, n_predict=0, **options):
        session = Session(virtual=lines)
        sessions.append(session)
        session.open(str(path))
        session.options = dataclasses.replace(session.default_options(), **options)
        return session.predict(n_prompt, n_predict)

    yield call
    for session in sessions:
        session.close()


def cards(n_devices):
    return [*[CARD.format(f"GPU{i}") for i in range(n_devices)], CPU]


@pytest.fixture
def on_cards(predict):
    """Return a function that predicts the prompt of 16 graphs on so many equal cards."""

    def call(n_devices, n_copies, **options):
        n_ctx = N_UBATCHES * N_UBATCH
        return predict(
            golden.header(SMOLLM2), cards(n_devices), n_ctx,
            tensor_split=SHARES[n_devices], n_copies=n_copies, n_ctx=n_ctx, n_ubatch=N_UBATCH,
            **options,
        )  # fmt: skip

    return call


def busy_ns(figures):
    """Return how long each device computes."""
    return {device.name: device.busy_ns for device in figures.together.devices}


@pytest.mark.parametrize("n_devices", [2, 3, 4])
def test_equal_devices_come_close_to_the_limit_of_a_pipeline(on_cards, n_devices):
    """p devices and m graphs end after m + p - 1 stages, where one after the other takes p * m."""
    one_by_one = on_cards(n_devices, 1).figures
    pipeline = on_cards(n_devices, 4).figures

    limit = n_devices * N_UBATCHES / (N_UBATCHES + n_devices - 1)
    assert one_by_one.prompt_ns / pipeline.prompt_ns >= 0.95 * limit
    assert busy_ns(pipeline) == busy_ns(one_by_one)


def test_graphs_one_after_the_other_do_not_overlap(on_cards):
    found = on_cards(2, 1).figures

    assert found.together.overlap_ns == 0
    assert "--n-copies 1" in found.together.pipeline_obstacle


def test_three_devices_need_more_than_two_graphs_at_once(on_cards):
    times = [on_cards(3, n_copies).figures.prompt_ns for n_copies in (1, 2, 3)]

    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3


def test_steps_of_a_pipeline_overlap_and_are_whole(on_cards):
    spans = on_cards(2, 4).snapshot.spans()

    steps = spans[spans["kind"] == SpanKind.STEP]
    assert steps["bytes"].tolist() == [N_UBATCH] * N_UBATCHES
    assert (steps["start_ns"][1:] < steps["end_ns"][:-1]).all()


@pytest.mark.parametrize("line", ["{}:gpu:8192:preset=rpc", "{}:gpu:8192:preset=cuda,cpyasync=0"])
def test_devices_that_cannot_copy_to_one_another_overlap_less(on_cards, predict, line):
    """The host carries the bytes, and waits for the first device before it can."""
    lines = [*[line.format(name) for name in ("A", "B")], CPU]
    options = {"n_ctx": 2048, "n_ubatch": N_UBATCH, "tensor_split": SHARES[2]}

    carried = predict(golden.header(SMOLLM2), lines, 2048, **options).figures
    alone = predict(golden.header(SMOLLM2), lines, 2048, n_copies=1, **options).figures

    assert 1 < alone.prompt_ns / carried.prompt_ns < 1.88


def test_a_prediction_counts_tokens_as_a_run_does(predict):
    found = predict(nano(), cards(1), 7, 3, n_ctx=256)

    spans = found.snapshot.spans()
    steps = spans[spans["kind"] == SpanKind.STEP]
    assert steps["peer"].tolist() == [StepKind.PROMPT, StepKind.TOKEN, StepKind.TOKEN]
    assert (found.figures.n_prompt_tokens, found.figures.n_tokens) == (7, 3)
    assert found.figures.tokens_per_s == pytest.approx(2e9 / found.figures.generation_ns)


@pytest.mark.parametrize(("n_predict", "n_steps"), [(0, 0), (1, 0), (2, 1)])
def test_the_first_token_is_the_prompts_own(predict, n_predict, n_steps):
    found = predict(nano(), cards(1), 7, n_predict, n_ctx=256)

    kinds = found.snapshot.of_kind(SpanKind.STEP)["peer"].tolist()
    assert kinds == [StepKind.PROMPT] + [StepKind.TOKEN] * n_steps
    assert found.figures.n_tokens == n_predict


def test_a_prediction_ends_where_the_context_is_full(predict):
    found = predict(nano(), cards(1), 250, 1000, n_ctx=256)

    assert found.figures.n_tokens == 7


def test_busy_and_idle_time_add_up_to_the_whole_run(predict):
    found = predict(nano(), cards(2), 100, 4, n_ctx=256)

    steps = found.snapshot.of_kind(SpanKind.STEP)
    wall_ns = steps["end_ns"].max() - steps["start_ns"].min()
    for device in found.figures.together.devices:
        assert device.busy_ns + sum(idle.time_ns for idle in device.idle) == wall_ns


def test_the_host_plans_in_no_time(predict):
    spans = predict(nano(), cards(1), 100, 2, n_ctx=256).snapshot.spans()

    planning = spans[spans["kind"] == SpanKind.PLAN]
    assert len(planning) > 0
    assert (planning["start_ns"] == planning["end_ns"]).all()


def test_the_same_run_is_predicted_the_same_each_time(predict):
    first, second = (predict(nano(), cards(2), 100, 4, n_ctx=256) for _ in range(2))

    assert first.figures == second.figures
    assert first.snapshot.spans().tobytes() == second.snapshot.spans().tobytes()


def test_a_file_without_its_weights_is_predicted_like_a_whole_one(predict, tmp_path):
    header = nano_with(tmp_path, whole=False)

    assert predict(header, cards(2), 40, 4).figures == predict(nano(), cards(2), 40, 4).figures


@pytest.mark.parametrize("lines", [[CPU], ["GPU0:gpu:8192:preset=cuda", "BLAS:accel:0", CPU]])
def test_layers_on_the_cpu_are_predicted_too(predict, lines):
    found = predict(nano(), lines, 40, 4, n_gpu_layers=0).figures

    assert busy_ns(found)["CPU"] > 0


def test_a_device_that_is_twice_as_fast_takes_less(predict):
    slow, fast = (
        predict(nano(), [f"G:gpu:8192:gbps={gbps},gflops={gbps},link={gbps}", CPU], 40, 4).figures
        for gbps in (1, 2)
    )

    assert fast.prompt_ns < slow.prompt_ns
    assert fast.generation_ns < slow.generation_ns


def test_a_trace_says_in_its_marks_and_names_that_it_is_predicted(predict):
    found = predict(nano(), cards(2), 40)

    assert [mark.text for mark in found.snapshot.marks] == [
        "predicted, not measured: GPU0, GPU1, CPU exist on paper only"
    ]
    assert found.meta.is_predicted
    assert found.meta.command.endswith(f"--virtual {CARD.format('GPU1')} --virtual {CPU}")


def test_real_devices_are_not_predicted():
    session = Session()
    session.open(nano())

    with pytest.raises(PlacementError, match=r"Only devices on paper are predicted\."):
        session.predict(1, 1)
    session.close()


def test_a_prompt_longer_than_the_context_is_refused(predict):
    with pytest.raises(ModelError, match="prompt is too long: 300 tokens"):
        predict(nano(), cards(1), 300, n_ctx=256)


def test_a_model_that_writes_no_text_is_refused(predict, tmp_path):
    with pytest.raises(ModelError, match="This model gives embeddings"):
        predict(encoder(tmp_path), cards(1), 10)


def test_divided_rows_are_refused_in_words(predict):
    lines = [f"{name}:gpu:8192:split=1" for name in ("A", "B")]

    with pytest.raises(PlacementError, match="-sm row cannot be predicted"):
        predict(nano(), lines, 10, split_mode="row")


def test_devices_that_share_every_layer_work_at_the_same_time(predict):
    by_layer, shared = (
        predict(golden.header(SMOLLM2), cards(2), 64, 8, split_mode=mode, n_ctx=256).figures
        for mode in ("layer", "tensor")
    )

    assert list(busy_ns(shared)) == ["GPU0", "GPU1", "CPU"]
    assert shared.together.overlap_ns > busy_ns(shared)["GPU0"] / 2
    assert by_layer.together.overlap_ns == 0


def test_copies_to_devices_that_share_every_layer_are_in_virtual_time_too(predict):
    found = predict(nano(), cards(2), 40, 4, split_mode="tensor", n_ctx=256)

    spans = found.snapshot.spans()
    end_ns = spans["end_ns"][spans["kind"] == SpanKind.STEP].max()
    copies = spans[spans["kind"] == SpanKind.COPY]
    assert len(copies) > 0
    assert 0 <= copies["start_ns"].min() < copies["end_ns"].max() <= end_ns


def test_what_is_copied_to_devices_that_share_layers_goes_to_each_of_them(predict):
    """Every device gets all of it: the links add up to what was moved."""
    found = predict(nano(), cards(2), 40, 4, split_mode="tensor", n_ctx=256)

    spans = found.snapshot.spans()
    n_bytes = {(link.source, link.target): link.n_bytes for link in found.figures.together.links}
    assert n_bytes["CPU", "GPU0"] == n_bytes["CPU", "GPU1"] > 0
    assert not [target for _, target in n_bytes if target not in ("GPU0", "GPU1", "CPU")]
    (step, *_) = steps_of_kind(spans, StepKind.TOKEN)
    mine = spans[spans["step"] == step]
    copies = mine[mine["kind"] == SpanKind.COPY]
    into = [copies[copies["lane"] == MEMBER_LANE + i] for i in (0, 1)]
    assert into[0]["index"].tolist() == into[1]["index"].tolist() != []
    summary = steps_summary(spans, (step,))
    assert summary.copied_bytes >= 2 * into[0]["bytes"].sum()
    assert (into[0]["end_ns"] <= into[1]["start_ns"]).all()


@pytest.mark.parametrize(("n_gpu_layers", "is_told"), [(0, True), (99, False)])
def test_copies_of_experts_that_nobody_knows_are_told(predict, n_gpu_layers, is_told):
    lines = ["G:gpu:8192:preset=cuda,offload=1", CPU]

    found = predict(golden.header("tiny-qwen3moe-f32"), lines, 40, n_gpu_layers=n_gpu_layers)

    assert bool(found.figures.notes) is is_told
    assert [mark.text for mark in found.snapshot.marks][1:] == list(found.figures.notes)


def test_a_prediction_that_somebody_stopped_before_it_began_is_not_made():
    session = Session(virtual=cards(1))
    session.open(nano())
    job = session.admit()
    session.ask_stop()

    with pytest.raises(Stopped):
        session.predict(10, 1, job=job)
    session.close()


def test_options_of_a_prediction_are_those_of_the_plan_before_it():
    session = Session(virtual=cards(2))
    session.open(nano())
    session.plan(Options(n_gpu_layers=1, n_ctx=256))

    found = session.predict(10, 1).figures

    session.close()
    assert found.together.pipeline_obstacle == "not every layer is on a device (-ngl)"


def test_tokens_that_the_context_has_no_room_for_are_said(predict):
    figures = predict(nano(), cards(1), 256, 50, n_ctx=256).figures

    assert figures.n_tokens == 1
    assert figures.notes == (
        "the context of 256 tokens is full after 1 generated token: a longer one (-c) takes more",
    )
    assert predict(nano(), cards(1), 250, 3, n_ctx=256).figures.notes == ()
