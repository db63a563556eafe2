"""An embedding model in the window: Embed in place of Run, and what becomes of the rows."""

import json

import numpy as np
import pytest
from PySide6.QtGui import QGuiApplication

from app.shell.embedding_result import facts_text, rows_text
from app.theme.text import SPACE
from engine.core.summary import Embedded, RunSummary, StopReason
from tests.engine.encoder import NONE, encoder
from tests.engine.nano import nano

TIMEOUT_MS = 280_000

SUMMARY = RunSummary(
    prompt="a", prompt_tokens=(1, 2), tokens=(), text="", stop_reason=StopReason.LENGTH,
    prefill_tokens_per_s=600.0, decode_tokens_per_s=0.0, prefill_ns=3_340_000, decode_step_ns=(),
    prompt_plan_id=0, token_plan_id=-1, splits=(), copies=(),
)  # fmt: skip


def embedded(rows, pooling="mean"):
    return Embedded(pooling, np.array(rows, np.float32), SUMMARY)


def test_the_facts_say_rows_values_pooling_and_time():
    words = facts_text(embedded([[3, 4, 0, 0, 0]])).replace(SPACE, " ")

    assert words.startswith("1 row of 5 values, pooling mean; 2 tokens in 3.34 ms.")
    assert words.endswith("the norm of each row and the first 4 values.")


def test_one_row_shows_its_norm_and_its_first_values():
    assert rows_text(embedded([[3, -4, 0, 0, 0]])) == (
        "norm 5.0000\n 3.0000 −4.0000  0.0000  0.0000 …"  # noqa: RUF001 - a minus as shown
    )


def test_rows_of_tokens_are_numbered_and_short_ones_are_whole():
    assert rows_text(embedded([[3, 4], [0, 1]], "none")) == (
        "0  norm 5.0000   3.0000  4.0000\n1  norm 1.0000   0.0000  1.0000"
    )


@pytest.fixture
def open_file(ready_app, qtbot):
    def open_(path):
        ready_app.controller.open(path)
        state = ready_app.state
        qtbot.waitUntil(
            lambda: (
                state.model is not None and state.model.path == path and state.plans is not None
            ),
            timeout=TIMEOUT_MS,
        )
        ready_app.window.show()
        return ready_app

    return open_


def embed(app, qtbot, text):
    app.window.run_panel.prompt.setPlainText(text)
    app.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: not app.controller.is_busy, timeout=TIMEOUT_MS)


@pytest.mark.slow
def test_an_encoder_is_offered_embed_and_a_decoder_run(open_file, tmp_path):
    panel = open_file(encoder(tmp_path)).window.run_panel
    offered = [panel.run_button.text(), panel.embedding.isHidden(), panel.n_predict.isHidden()]

    window = open_file(nano()).window
    after = [panel.run_button.text(), panel.embedding.isHidden(), panel.n_predict.isHidden()]

    assert offered == ["Embed", False, True]
    assert after == ["Run", True, False]
    assert window.toolbar.run_button.text() == "Run"


@pytest.mark.slow
def test_embedding_brings_rows_plans_and_spans(open_file, tmp_path, qtbot):
    app = open_file(encoder(tmp_path, pooling=NONE))

    embed(app, qtbot, "hello world")
    qtbot.waitUntil(
        lambda: app.state.trace is not None and not app.bridge._poll_timer.isActive(),
        timeout=TIMEOUT_MS,
    )

    state, panel = app.state, app.window.run_panel
    assert state.run.embedded.rows.shape == (4, 256)
    assert len(panel.embedding.rows.toPlainText().splitlines()) == 4
    assert state.shown_plan is state.met_plans[state.run.summary.prompt_plan_id]
    assert state.trace.n_spans > 0
    assert app.window.answer.label.plain_text.startswith("Prompt ")
    assert panel.run_button.text() == "Embed again"


@pytest.mark.slow
def test_rows_are_copied_and_saved_and_a_refusal_is_said_beside_the_buttons(
    open_file, tmp_path, qtbot
):
    app = open_file(encoder(tmp_path))
    commands, panel = app.window.commands, app.window.run_panel.embedding
    assert not panel.buttons["copy_embedding"].isEnabled()

    embed(app, qtbot, "hello")
    panel.buttons["copy_embedding"].click()
    copied = json.loads(QGuiApplication.clipboard().text())
    commands.save_embedding_to(str(tmp_path / "rows.npy"))
    said = panel.outcome.text()
    commands.save_embedding_to(str(tmp_path / "nowhere" / "rows.npy"))

    rows = app.state.run.embedded.rows
    assert np.array_equal(np.load(tmp_path / "rows.npy"), rows)
    assert copied["embeddings"] == rows.tolist()
    assert np.abs(rows).min() > 0
    assert said == "rows.npy is written."
    assert panel.outcome.text().startswith("Cannot write rows.npy. This folder does not exist")


@pytest.mark.slow
def test_a_text_that_is_too_long_is_said_at_its_field_until_it_is_changed(
    open_file, tmp_path, qtbot
):
    app = open_file(encoder(tmp_path))
    n_messages = len(app.window.messages.messages)

    embed(app, qtbot, "a " * 600)
    problem = app.window.run_panel.problem
    shown = (problem.isHidden(), problem.text())
    app.window.run_panel.prompt.setPlainText("a")

    assert shown[0] is False
    assert "The text is too long: 602 tokens." in shown[1]
    assert len(app.window.messages.messages) == n_messages
    assert problem.isHidden()
    embed(app, qtbot, "a")
    assert app.state.run.embedded is not None
