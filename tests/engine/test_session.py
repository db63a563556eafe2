"""A session on a real small model: what it loads, keeps, stops and says."""

import gc
import threading
import weakref
from dataclasses import replace

import pytest

import engine.backends
from engine import paths
from engine.core.options import BlasUse, Options
from engine.core.plan import Batch
from engine.core.summary import RunState, StopReason
from engine.errors import DeviceError, GgufError, ModelError, PlacementError, Stopped
from engine.model.context import ModelContext
from engine.running import Listeners
from engine.session import Session
from engine.trace.records import SpanKind, StepKind
from tests.engine.nano import nano, nano_with

CPU = Options(devices=("none",), n_ctx=256, temperature=0)
SLOW_PLUGIN = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"
PROMPT = "Hello world"
PROMPT_TOKENS = 7
FIRST_TOKENS = (745, 270, 132)


@pytest.fixture
def told():
    """Collect what a session tells, by kind."""
    return {"progress": [], "plans": [], "text": [], "states": []}


@pytest.fixture
def session(told):
    """Return a session with the nano model open on the CPU."""
    session = Session(
        listeners=Listeners(
            on_progress=told["progress"].append,
            on_plan=told["plans"].append,
            on_text=told["text"].append,
            on_state=told["states"].append,
        )
    )
    session.open(nano())
    session.plan(CPU)
    yield session
    session.close()


# --- generating -----------------------------------------------------------------------------


def test_a_run_gives_tokens_text_and_why_it_ended(session, told):
    summary = session.run(PROMPT, 3)

    assert summary.tokens == FIRST_TOKENS
    assert summary.text == "".join(told["text"])
    assert len(summary.prompt_tokens) == PROMPT_TOKENS
    assert summary.stop_reason is StopReason.LENGTH


def test_states_are_told_in_order_and_end_idle(session, told):
    session.run(PROMPT, 2)

    states = [status.state for status in told["states"]]
    assert list(dict.fromkeys(states)) == [
        RunState.PREPARING, RunState.PROMPT, RunState.GENERATING, RunState.IDLE,
    ]  # fmt: skip
    assert told["states"][-1].n_tokens == 2


def test_no_token_is_generated_when_none_is_wanted(session):
    summary = session.run(PROMPT, 0)

    assert (summary.tokens, summary.decode_step_ns) == ((), ())
    assert summary.prefill_ns > 0


def test_one_token_needs_no_step_beside_the_prompts(session):
    summary = session.run(PROMPT, 1)

    assert (summary.tokens, summary.decode_step_ns) == (FIRST_TOKENS[:1], ())
    assert summary.token_plan_id == -1


def test_a_run_ends_where_the_context_is_full(session):
    summary = session.run(PROMPT, 1000)

    assert summary.stop_reason is StopReason.CONTEXT_FULL
    assert len(summary.prompt_tokens) + len(summary.tokens) == 256 + 1


def test_a_run_ends_at_the_end_of_text(tmp_path):
    session = Session()
    session.open(nano_with(tmp_path, tokenizer__ggml__eos_token_id=FIRST_TOKENS[2]))
    session.plan(CPU)

    summary = session.run(PROMPT, 10)
    session.close()

    assert summary.stop_reason is StopReason.END_OF_TEXT
    assert summary.tokens == FIRST_TOKENS[:2]


def test_a_prompt_longer_than_the_context_is_refused_before_anything_is_loaded(session, told):
    with pytest.raises(ModelError, match=r"prompt is too long: 301 tokens\. The context holds 256"):
        session.run("a" * 300, 1)

    assert told["progress"] == []


def test_a_prompt_as_long_as_the_context_gives_one_token(session):
    summary = session.run("a" * 255, 5)

    assert (len(summary.prompt_tokens), len(summary.tokens)) == (256, 1)
    assert summary.stop_reason is StopReason.CONTEXT_FULL


def test_an_empty_prompt_is_refused_by_a_model_that_adds_no_token(tmp_path):
    session = Session()
    session.open(nano_with(tmp_path, tokenizer__ggml__add_bos_token=False))
    session.plan(CPU)

    with pytest.raises(ModelError, match="The prompt is empty"):
        session.run("", 1)
    session.close()


def test_the_same_seed_gives_the_same_tokens_and_another_one_others(session):
    def tokens(seed):
        session.options = replace(CPU, seed=seed, temperature=1.0)
        return session.run(PROMPT, 20).tokens

    assert tokens(3) == tokens(3)
    assert tokens(3) != tokens(4)


def test_score_follows_the_given_tokens_and_says_how_far_they_are_off(session):
    result = session.score(PROMPT, [FIRST_TOKENS[0], 5, 6])

    first, second, _ = result.steps
    assert (first.token, first.argmax, first.gap) == (745, 745, 0.0)
    assert second.argmax == FIRST_TOKENS[1]
    assert second.gap == pytest.approx(result.logits[1].max() - result.logits[1][5])
    assert len(result.logits) == 3


def test_score_refuses_a_token_the_model_does_not_know(session):
    with pytest.raises(ModelError, match=r"no token 1024\. The model knows tokens 0 to 1023"):
        session.score(PROMPT, [1024])


# --- devices that are gone --------------------------------------------------------------------


def test_a_device_that_goes_between_the_plan_and_the_run_is_named_and_the_session_goes_on(session):
    session.load_backend(SLOW_PLUGIN)
    session.plan(replace(CPU, devices=("Slow",)))
    setup = session.setup()
    session.unload_backend(session.find_backend("slow"))

    with pytest.raises(DeviceError) as caught:
        session.run(PROMPT, 1, setup=setup)

    assert caught.value.title == "Slow is not there any more."
    assert caught.value.sentence.startswith("The model was planned for it. This machine has ")
    session.plan(CPU)
    assert session.run(PROMPT, 3).tokens == FIRST_TOKENS


def test_what_is_loaded_stays_when_a_device_of_another_plan_is_gone(session, monkeypatch):
    loaded = session.prepare()
    devices = session._machine.devices
    session.plan(replace(CPU, n_ctx=512))
    monkeypatch.setattr(session._machine, "devices", lambda: ())

    with pytest.raises(DeviceError, match=r"CPU is not there any more\."):
        session.run(PROMPT, 1)

    monkeypatch.setattr(session._machine, "devices", devices)
    session.plan(CPU)
    assert session.run(PROMPT, 3).tokens == FIRST_TOKENS
    assert session.prepare() is loaded


# --- sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [CPU, replace(CPU, devices=None, n_gpu_layers=2)])
def test_the_sums_of_a_run_are_those_of_its_spans(session, options):
    session.plan(options)

    summary = session.run(PROMPT, 6)

    snapshot = session.snapshot()
    steps = snapshot.of_kind(SpanKind.STEP)
    prompt = steps[steps["peer"] == StepKind.PROMPT]
    token = steps[steps["peer"] == StepKind.TOKEN]
    assert summary.prefill_ns == (prompt["end_ns"] - prompt["start_ns"]).sum()
    assert list(summary.decode_step_ns) == list(token["end_ns"] - token["start_ns"])
    for kind, rows in ((SpanKind.SPLIT, summary.splits), (SpanKind.COPY, summary.copies)):
        spans = snapshot.of_kind(kind)
        summed = sum(sum(row.time_ns) for row in rows)
        assert summed == (spans["end_ns"] - spans["start_ns"]).sum()


def test_why_a_pipeline_was_given_up_is_a_note_of_the_run(session):
    note = "Pipeline off: no memory for 4 graphs at once."
    session.prepare().pipeline_note = note

    assert session.run(PROMPT, 1).notes == (note,)


def test_every_split_has_a_time_for_every_step_and_they_cover_the_graph(session):
    summary = session.run(PROMPT, 4)

    for batch, n_steps in ((Batch.PROMPT, 1), (Batch.TOKEN, 3)):
        rows = [row for row in summary.splits if row.batch == batch.value]
        plan = session.met_plans[summary.token_plan_id]
        assert {len(row.time_ns) for row in rows} == {n_steps}
        assert sum(row.n_nodes for row in rows) == plan.n_nodes


def test_a_trace_has_the_options_of_its_run_not_newer_ones(session, tmp_path):
    session.run(PROMPT, 2)
    session.plan(replace(CPU, n_gpu_layers=1))

    n_bytes = session.export_trace(tmp_path / "t.json", chrome=True)

    text = (tmp_path / "t.json").read_text()
    assert n_bytes == len(text.encode())
    assert "-c 256 " in text
    assert "-ngl 1" not in text


def test_there_is_no_trace_before_the_first_run(session, tmp_path):
    with pytest.raises(Exception, match="no trace yet"):
        session.export_trace(tmp_path / "t.pftrace")


# --- loading --------------------------------------------------------------------------------


def test_a_second_run_uses_what_the_first_one_loaded_and_gives_the_same(session):
    context = session.prepare()

    first, second = session.run(PROMPT, 3), session.run(PROMPT, 3)

    assert session.prepare() is context
    assert first.tokens == second.tokens


@pytest.mark.parametrize(
    "change", [{"temperature": 1.0}, {"seed": 5}, {"op_offload": False}, {"n_threads": 1}], ids=str
)
def test_these_options_do_not_load_the_model_again(session, change):
    context = session.prepare()

    session.plan(replace(CPU, **change))

    assert session.prepare() is context


@pytest.mark.parametrize("change", [{"n_gpu_layers": 1}, {"n_ctx": 512}, {"n_ubatch": 64}], ids=str)
def test_these_options_do(session, change):
    context = session.prepare()

    session.plan(replace(CPU, **change))

    assert session.prepare() is not context


def test_a_plan_that_fails_leaves_the_options_of_the_next_run_as_they_were(session):
    with pytest.raises(PlacementError, match="no device GPU7"):
        session.plan(replace(CPU, devices=("GPU7",)))

    assert session.options == CPU
    assert session.run(PROMPT, 1).tokens == FIRST_TOKENS[:1]


def test_opening_another_model_releases_the_old_one(session, tmp_path):
    loaded = weakref.ref(session.prepare())

    session.open(nano_with(tmp_path))
    gc.collect()

    assert loaded() is None
    assert session.options == Options()


def test_a_file_that_cannot_be_opened_leaves_the_open_one(session, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF?")

    with pytest.raises(GgufError):
        session.open(str(broken))

    assert session.run(PROMPT, 1).tokens == FIRST_TOKENS[:1]


def test_a_header_without_data_is_planned_and_its_run_refused(tmp_path):
    session = Session()
    summary = session.open(nano_with(tmp_path, whole=False))
    plans = session.plan(CPU)

    with pytest.raises(ModelError, match=r"It can be planned, not run\.") as raised:
        session.run(PROMPT, 1)
    session.close()

    assert plans.prompt.n_nodes == 99
    assert str(raised.value.title) in summary.run_problem


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (MemoryError(), r"shorter context \(-c\)"),
        (DeviceError("OpenCL0 could not allocate 5 bytes.", hint="Free some."), "Free some"),
    ],
    ids=repr,
)
def test_a_load_that_fails_says_what_to_do_and_other_options_can_be_tried(
    session, monkeypatch, error, hint
):
    def fail(context, on_progress):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ModelContext, "load", fail)
        with pytest.raises(DeviceError, match=hint):
            session.run(PROMPT, 1)
    session.plan(replace(CPU, n_ctx=512))

    assert session.run(PROMPT, 1).tokens == FIRST_TOKENS[:1]


def test_a_device_that_refuses_in_a_run_is_loaded_anew_for_the_next(session, monkeypatch):
    context = session.prepare()

    def fail(*args):
        raise DeviceError("CPU could not compute.")

    with monkeypatch.context() as patch:
        patch.setattr(ModelContext, "decode", fail)
        with pytest.raises(DeviceError):
            session.run(PROMPT, 1)

    assert session.prepare() is not context
    assert session.run(PROMPT, 1).tokens == FIRST_TOKENS[:1]


# --- stopping -------------------------------------------------------------------------------


def listening(**listeners):
    session = Session(listeners=Listeners(**listeners))
    session.open(nano())
    session.plan(CPU)
    return session


def test_a_run_stopped_while_generating_is_summed_up():
    session = listening(on_text=lambda text: session.ask_stop())

    summary = session.run(PROMPT, 100)
    session.close()

    assert summary.stop_reason is StopReason.STOPPED
    assert summary.tokens == FIRST_TOKENS[:1]


def test_a_run_stopped_while_it_reads_the_prompt_has_no_token():
    def on_state(status):
        if status.state is RunState.PROMPT:
            session.ask_stop()

    session = listening(on_state=on_state)

    summary = session.run(PROMPT, 100)
    session.close()

    assert summary.stop_reason is StopReason.STOPPED
    assert (summary.tokens, summary.prefill_ns) == ((), 0)
    assert (summary.n_prompt_read, summary.n_unread) == (0, len(summary.prompt_tokens))


def test_a_run_stopped_while_it_compiles_or_loads_can_be_started_again():
    stops = [True]
    session = listening(on_progress=lambda progress: stops and session.ask_stop())

    with pytest.raises(Stopped):
        session.run(PROMPT, 2)
    stops.clear()
    summary = session.run(PROMPT, 2)
    session.close()

    assert summary.tokens == FIRST_TOKENS[:2]


def test_a_wish_to_stop_concerns_what_was_asked_for_before_it_only(session):
    early = session.admit()
    session.ask_stop()

    with pytest.raises(Stopped):
        session.run(PROMPT, 1, job=early)
    assert session.run(PROMPT, 1).tokens == FIRST_TOKENS[:1]


# --- planning beside a run ------------------------------------------------------------------


def test_another_thread_plans_while_a_run_goes_on_and_flips_op_offload():
    planned, go_on = threading.Event(), threading.Event()

    def plan_meanwhile():
        planned.result = session.plan(replace(CPU, n_ctx=65536, op_offload=False))
        planned.set()
        go_on.set()

    def on_text(text):
        if not planner.is_alive() and not planned.is_set():
            planner.start()
            go_on.wait(60)

    planner = threading.Thread(target=plan_meanwhile)
    session = listening(on_text=on_text)

    summary = session.run(PROMPT, 5)
    planner.join()
    plans = [plan.op_offload for plan in session.met_plans.values()]
    marks = [mark.text for mark in session.snapshot().marks]
    session.close()

    assert planned.result.n_ctx == 65536
    assert len(summary.tokens) == 5
    assert plans == [True, False]
    assert marks == ["op_offload off"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"split_mode": "tensor"}, "-sm tensor needs at least one device"),
        ({"tensor_split": (3, 1)}, "-ts has 2 shares for no devices"),
        ({"devices": ("GPU7",)}, "There is no device GPU7"),
    ],
)
def test_what_does_not_go_with_the_devices_is_refused_and_what_is_loaded_stays(
    session, told, changes, said
):
    context = session.prepare()
    told["progress"].clear()
    session.options = replace(CPU, **changes)

    for refused in (session.prepare, lambda: session.run(PROMPT, 1)):
        with pytest.raises(PlacementError, match=said):
            refused()

    assert told["progress"] == []
    session.options = CPU
    assert session.prepare() is context


# --- devices on paper -----------------------------------------------------------------------


def test_devices_on_paper_plan_and_refuse_to_run():
    session = Session(virtual=["GPU0:gpu:100"])
    session.open(nano())

    plans = session.plan(Options())

    assert [device.name for device in plans.prompt.devices] == ["GPU0", "CPU"]
    with pytest.raises(PlacementError, match="Devices on paper cannot run a model"):
        session.run(PROMPT, 1)
    session.close()


def test_two_devices_on_paper_need_two_names():
    with pytest.raises(PlacementError, match="Two devices are called gpu0"):
        Session(virtual=["GPU0:gpu:100", "gpu0:gpu:100"])


@pytest.fixture
def no_gpu(monkeypatch):
    """Take the OpenCL backend away and let the demo be the nano model."""
    only_cpu = tuple(item for item in engine.backends.BUILTIN if item.name == "CPU")
    monkeypatch.setattr(engine.backends, "BUILTIN", only_cpu)
    monkeypatch.setattr("engine.planning.fetch_demo", lambda *args: nano())


def test_without_a_gpu_the_demo_is_planned_with_one_on_paper_and_its_run_says_so(no_gpu):
    session = Session()
    session.open("demo")
    plans = session.plan(replace(session.default_options(), n_gpu_layers=2, n_ctx=256))

    summary = session.run(PROMPT, 2)
    marks = [mark.text for mark in session.snapshot().marks]
    session.close()

    assert plans.prompt.devices[0].description.startswith("on paper")
    assert {row.backend for row in summary.splits} == {"CPU"}
    assert marks == ["GPU0 exists on paper only: this run uses CPU"]


def test_what_is_off_is_not_among_the_devices_that_a_run_uses(monkeypatch):
    import engine.backends

    here = tuple(item for item in engine.backends.BUILTIN if item.name in ("CPU", "BLAS"))
    monkeypatch.setattr(engine.backends, "BUILTIN", here)
    monkeypatch.setattr("engine.planning.fetch_demo", lambda *args: nano())
    session = Session()
    session.open("demo")
    session.options = session.default_options()

    notes = {}
    for use in (BlasUse.OFF, BlasUse.ALL):
        session.options = replace(session.options, blas=use)
        notes[use] = session.setup().paper_note
    session.close()

    assert notes[BlasUse.OFF] == "GPU0 exists on paper only: this run uses CPU"
    assert notes[BlasUse.ALL].endswith("this run uses BLAS, CPU")


def test_naming_devices_asks_for_real_ones(no_gpu):
    session = Session()
    session.open("demo")

    plans = session.plan(CPU)
    session.close()

    assert [device.name for device in plans.prompt.devices] == ["CPU"]


def test_without_a_model_everything_says_that_none_is_open():
    session = Session()

    for ask in (lambda: session.plan(CPU), lambda: session.run(PROMPT, 1)):
        with pytest.raises(ModelError, match="No model is open"):
            ask()


# --- the demo model -------------------------------------------------------------------------


@pytest.mark.demo
@pytest.mark.slow
@pytest.mark.parametrize("options", [CPU, Options(n_gpu_layers=15, n_ctx=256, temperature=0)])
def test_the_demo_model_knows_a_capital(demo_model, options):
    session = Session()
    session.open(str(demo_model))
    session.plan(options)

    summary = session.run("The capital of France is", 8)
    session.close()

    assert "Paris" in summary.text
