"""The engine as a process of its own: what it answers, in what order, and how it ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.options import Options
from engine.core.summary import RunState, StopReason
from engine.errors import ModelError, Stopped
from engine.service.messages import (
    PROTOCOL,
    EmbedEnded,
    EngineReady,
    Exported,
    ExportTrace,
    Failed,
    ModelOpened,
    OpenModel,
    PlanMet,
    Planned,
    Poll,
    Replan,
    RunEnded,
    RunStateChanged,
    Shutdown,
    StartEmbed,
    StartRun,
    StopRun,
    TextEmitted,
    TraceArrived,
    TraceFormat,
)
from engine.service.serve import failed_answer
from engine.trace.records import SpanKind
from tests.engine.encoder import encoder
from tests.engine.nano import nano, nano_with
from tests.engine.service.conftest import PATIENCE_S, ROOT

CPU = Options(devices=("none",), n_ctx=256, temperature=0)
LONG = replace(CPU, n_ctx=65536)
N_LONG = 60_000
PROMPT = "Hello world"
FIRST_TOKENS = (745, 270, 132)

MODEL_ID, PLAN_ID, RUN_ID, OTHER_ID = 1, 2, 3, 4


@pytest.fixture
def opened(child):
    """Return the process with the nano model open on the CPU."""
    child.send(OpenModel(MODEL_ID, nano(), CPU))
    child.wait_for(Planned, request_id=MODEL_ID)
    return child


@pytest.fixture
def running(opened):
    """Return the process in the middle of a run that takes many seconds."""
    opened.send(Replan(PLAN_ID, LONG), StartRun(RUN_ID, PROMPT, N_LONG, chat=False))
    opened.wait_for(TextEmitted)
    return opened


def stop(child):
    child.send(StopRun(99))
    return child.wait_for(RunEnded, request_id=RUN_ID).summary


def test_it_says_what_it_is_and_what_devices_there_are(child):
    ready = child.answers[0]

    assert isinstance(ready, EngineReady)
    assert ready.protocol == PROTOCOL
    assert ready.devices[-1].name == "CPU"


def test_a_header_without_data_is_opened_and_planned_and_its_run_refused(child, tmp_path):
    path = nano_with(tmp_path, whole=False)

    child.send(OpenModel(MODEL_ID, path), StartRun(RUN_ID, PROMPT, 1, chat=False))

    model = child.wait_for(ModelOpened, request_id=MODEL_ID).model
    assert (model.n_layers, model.plan_problem) == (3, "")
    assert child.wait_for(Planned, request_id=MODEL_ID).plans.prompt.n_nodes == 99
    failed = child.wait_for(Failed, request_id=RUN_ID)
    assert failed.title.endswith("It can be planned, not run.")


def test_a_run_tells_states_plans_and_text_before_it_ends(opened):
    opened.send(StartRun(RUN_ID, PROMPT, 3, chat=False))

    summary = opened.wait_for(RunEnded, request_id=RUN_ID).summary

    answers = opened.answers
    states = [a.state for a in answers if isinstance(a, RunStateChanged)]
    assert summary.tokens == FIRST_TOKENS
    assert "".join(a.text for a in answers if isinstance(a, TextEmitted)) == summary.text
    assert [a.plan.plan_id for a in answers if isinstance(a, PlanMet)] == [
        summary.prompt_plan_id, summary.token_plan_id,
    ]  # fmt: skip
    assert (states[0], states[-1]) == (RunState.PREPARING, RunState.IDLE)


def test_a_text_is_embedded_with_its_plan_and_spans(child, tmp_path):
    child.send(OpenModel(MODEL_ID, encoder(tmp_path), CPU), StartEmbed(RUN_ID, PROMPT))

    assert child.wait_for(ModelOpened).model.gives_embeddings
    embedded = child.wait_for(EmbedEnded, request_id=RUN_ID).embedded
    child.send(Poll(0))
    steps = child.wait_for(TraceArrived).snapshot.of_kind(SpanKind.STEP)

    states = [a.state for a in child.answers if isinstance(a, RunStateChanged)]
    met = [a.plan.plan_id for a in child.answers if isinstance(a, PlanMet)]
    assert (embedded.pooling, embedded.rows.shape) == ("cls", (1, 256))
    assert met == [embedded.summary.prompt_plan_id] == steps["plan_id"].tolist()
    assert states == [RunState.PREPARING, RunState.PROMPT, RunState.IDLE]


def test_a_poll_gives_what_is_newer_than_the_last_one(opened):
    opened.send(StartRun(RUN_ID, PROMPT, 3, chat=False))
    opened.wait_for(RunEnded)

    opened.send(Poll(0))
    everything = opened.wait_for(TraceArrived).snapshot
    opened.send(Poll(everything.seq))
    nothing = opened.wait_for(TraceArrived).snapshot

    assert len(everything.of_kind(SpanKind.STEP)) == 3
    assert (nothing.n_spans, nothing.seq) == (0, everything.seq)


def test_a_trace_is_written_where_that_is_possible(opened, tmp_path):
    opened.send(StartRun(RUN_ID, PROMPT, 2, chat=False))
    opened.wait_for(RunEnded)

    opened.send(ExportTrace(5, tmp_path / "a.pftrace"))
    opened.send(ExportTrace(6, tmp_path / "b.json", TraceFormat.CHROME))
    opened.send(ExportTrace(7, tmp_path / "nowhere" / "c.json"))

    assert opened.wait_for(Exported, request_id=5).n_bytes > 0
    assert opened.wait_for(Exported, request_id=6).n_bytes == (tmp_path / "b.json").stat().st_size
    assert "does not exist" in opened.wait_for(Failed, request_id=7).sentence


@pytest.mark.parametrize(
    ("request_", "title"),
    [
        (OpenModel(OTHER_ID, "/nowhere.gguf"), "nowhere.gguf"),
        (Replan(OTHER_ID, replace(CPU, devices=("GPU7",))), "no device GPU7"),
        (StartRun(OTHER_ID, "a" * 600, 1, chat=False), "prompt is too long"),
        (StartEmbed(OTHER_ID, "a"), "gives no embeddings"),
        (ExportTrace(OTHER_ID, ROOT / "x"), "no trace yet"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_job_that_fails_is_told_and_the_next_one_is_done(opened, request_, title):
    opened.send(request_, StartRun(RUN_ID, PROMPT, 1, chat=False))

    assert title in opened.wait_for(Failed, request_id=OTHER_ID).title
    assert opened.wait_for(RunEnded, request_id=RUN_ID).summary.tokens == FIRST_TOKENS[:1]


def test_without_a_model_a_plan_and_a_run_are_refused(child):
    child.send(Replan(PLAN_ID, CPU), StartRun(RUN_ID, PROMPT, 1))

    assert child.wait_for(Failed, request_id=PLAN_ID).title == "No model is open."
    assert child.wait_for(Failed, request_id=RUN_ID).title == "No model is open."


def test_a_plan_is_answered_in_the_middle_of_a_run(running):
    running.send(Replan(OTHER_ID, replace(LONG, n_gpu_layers=1)))

    plans = running.wait_for(Planned, request_id=OTHER_ID).plans
    assert plans.options.n_gpu_layers == 1
    assert "RunEnded" not in running.kinds()
    assert stop(running).stop_reason is StopReason.STOPPED


def test_op_offload_flips_in_the_middle_of_a_run_with_a_mark(running):
    running.send(Replan(OTHER_ID, replace(LONG, op_offload=False)))

    while running.wait_for(PlanMet).plan.op_offload:
        pass
    running.send(Poll(0))
    assert [m.text for m in running.wait_for(TraceArrived).snapshot.marks] == ["op_offload off"]
    assert stop(running).stop_reason is StopReason.STOPPED


def test_of_many_plans_asked_for_at_once_the_newest_is_always_answered(running):
    ids = list(range(100, 160))
    running.send(*(Replan(i, replace(LONG, n_gpu_layers=i % 4)) for i in ids))

    newest = running.wait_for(Planned, request_id=ids[-1])

    answered = [a.request_id for a in running.answers if isinstance(a, Planned)]
    assert newest.plans.options.n_gpu_layers == ids[-1] % 4
    assert answered == sorted(answered)
    assert stop(running).stop_reason is StopReason.STOPPED


def test_a_run_has_the_options_that_were_asked_for_before_it(opened):
    opened.send(
        Replan(PLAN_ID, replace(CPU, n_ctx=512)),
        StartRun(RUN_ID, PROMPT, 1000, chat=False),
        Replan(OTHER_ID, CPU),
    )

    summary = opened.wait_for(RunEnded, request_id=RUN_ID).summary
    assert len(summary.prompt_tokens) + len(summary.tokens) == 512 + 1


def test_a_run_is_stopped_soon(running, record_property):
    asked_s = time.monotonic()

    summary = stop(running)

    record_property("time to idle, s", time.monotonic() - asked_s)
    assert summary.stop_reason is StopReason.STOPPED
    assert 0 < len(summary.tokens) < N_LONG


def test_a_wish_to_stop_that_comes_before_the_run_began_is_not_lost(opened):
    opened.send(Replan(PLAN_ID, LONG), StartRun(RUN_ID, PROMPT, N_LONG, chat=False), StopRun(9))
    opened.send(StartRun(OTHER_ID, PROMPT, 1, chat=False))

    ended = opened.wait_for((RunEnded, Failed), request_id=RUN_ID)
    assert isinstance(ended, Failed) or ended.summary.stop_reason is StopReason.STOPPED
    assert opened.wait_for(RunEnded, request_id=OTHER_ID).summary.tokens == FIRST_TOKENS[:1]


def test_a_model_opened_in_the_middle_of_a_run_waits_for_its_end(running, tmp_path):
    running.send(OpenModel(OTHER_ID, nano_with(tmp_path, general__name="other"), CPU), StopRun(9))

    running.wait_for(RunEnded, request_id=RUN_ID)
    assert running.wait_for(ModelOpened, request_id=OTHER_ID).model.name == "other"
    assert running.wait_for(Planned, request_id=OTHER_ID).plans.n_ctx == 256


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (Stopped(), "Stopped."),
        (ModelError("A title."), "A title."),
        (MemoryError(), "There is not enough memory for this run."),
        (ZeroDivisionError("x"), "Something went wrong inside the engine."),
    ],
    ids=repr,
)
def test_every_failure_has_words(error, title):
    assert failed_answer(7, error).title == title


# --- how it ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x05K\x01."], ids=repr)
def test_bytes_that_are_no_request_end_it_with_words(child, data):
    child.connection.send_bytes(data)

    assert "The engine was sent something that is no request." in child.end()
    assert child.process.returncode == 1


def test_it_ends_when_asked_to_in_the_middle_of_a_run(running):
    running.send(Shutdown())

    assert running.end() == ""
    assert running.process.returncode == 0


def test_it_ends_when_the_pipe_does(running):
    running.connection.close()

    assert running.end() == ""


def test_ctrl_c_in_the_windows_terminal_is_the_windows_business(opened):
    opened.process.send_signal(signal.SIGINT)
    opened.send(StartRun(RUN_ID, PROMPT, 1, chat=False))

    assert opened.wait_for(RunEnded).summary.tokens == FIRST_TOKENS[:1]


PARENT = """
    import sys, time
    from app.bridge.engine_host import EngineHost
    from engine.service.messages import EngineReady

    def on_answer(answer):
        if isinstance(answer, EngineReady):
            print(host._child._process.pid, flush=True)

    host = EngineHost()
    host.start(on_answer)
    time.sleep(600)
"""


def test_no_orphan_stays_when_the_window_is_killed():
    window = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with window:
        engine_pid = int(window.stdout.readline())
        window.kill()

    deadline = time.monotonic() + PATIENCE_S
    while is_alive(engine_pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(engine_pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_started_by_hand_it_says_that_there_is_no_window():
    done = subprocess.run(
        [sys.executable, "-m", "engine", "serve"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr.startswith("There is no window to serve.")


def test_a_window_that_is_not_there_is_told(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "engine", "serve"],
        cwd=ROOT,
        env=os.environ
        | {"SPLITSCOPE_ADDRESS": str(tmp_path / "nobody"), "SPLITSCOPE_AUTHKEY": "00"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("The engine cannot reach the window.")
