"""An embedding model in the window: Embed in place of Run, and what becomes of the rows."""

import json

import numpy as np
import pytest
from PySide6.QtGui import QGuiApplication

from app.shell.embedding_result import facts_text, rows_text, speed_text
from app.theme.text import SPACE
from engine.core.options import PoolingWish
from engine.core.summary import Embedded, RunSummary, StopReason
from tests.engine.encoder import CLS, NONE, broken, encoder
from tests.engine.nano import nano, nano_with

TIMEOUT_MS = 280_000

SUMMARY = RunSummary(
    prompt="a", prompt_tokens=(1, 2), tokens=(), text="", stop_reason=StopReason.LENGTH,
    prefill_tokens_per_s=600.0, decode_tokens_per_s=0.0, prefill_ns=3_340_000, decode_step_ns=(),
    prompt_plan_id=0, token_plan_id=-1, splits=(), copies=(),
)  # fmt: skip


def embedded(rows, pooling="mean"):
    return Embedded(pooling, np.array(rows, np.float32), SUMMARY)


def test_the_facts_say_rows_values_and_pooling_and_where_it_is_chosen():
    assert facts_text(embedded([[3, 4, 0, 0, 0]])) == "1 row of 5 values, pooling mean (Options)"


def test_a_line_says_how_long_the_text_took():
    words = speed_text(embedded([[3, 4]])).replace(SPACE, " ")

    assert words == "2 tokens in 3.34 ms, 600.0 tok/s"


def test_one_row_shows_its_length_and_its_first_values():
    assert rows_text(embedded([[3, -4, 0, 0, 0]])) == (
        "length 5.0000\n 3.0000 −4.0000  0.0000  0.0000 …"  # noqa: RUF001 - a minus as shown
    )


def test_rows_of_tokens_are_numbered_and_short_ones_are_whole():
    assert rows_text(embedded([[3, 4], [0, 1]], "none")).splitlines() == [
        "row  length  first values",
        "  0  5.0000   3.0000  4.0000",
        "  1  1.0000   0.0000  1.0000",
    ]


@pytest.mark.parametrize("n_chars", [28, 33, 36, 41, 50, 80])
@pytest.mark.parametrize("n_rows", [1, 2, 1200])
def test_no_line_is_longer_than_there_is_room_for(n_chars, n_rows):
    lines = rows_text(embedded([[3, -4, 0, 0, 0]] * n_rows), n_chars).splitlines()

    assert max(map(len, lines)) <= n_chars


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
    assert len(panel.embedding.rows.toPlainText().splitlines()) == 1 + 4
    assert state.shown_plan is state.met_plans[state.run.summary.prompt_plan_id]
    assert state.trace.n_spans > 0
    assert app.window.answer.label.plain_text.startswith("Text ")
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
    assert said == f"rows.npy is written to {tmp_path}"
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
    assert shown[1].startswith("The text is too long: 602 tokens. The model sees")
    assert len(app.window.messages.messages) == n_messages
    assert problem.isHidden()
    embed(app, qtbot, "a")
    assert app.state.run.embedded is not None


@pytest.mark.slow
def test_a_refused_text_leaves_the_last_embedding_its_spans_and_its_plan(
    open_file, tmp_path, qtbot
):
    app = open_file(encoder(tmp_path))
    embed(app, qtbot, "hello")
    qtbot.waitUntil(
        lambda: app.state.trace is not None and not app.bridge._poll_timer.isActive(),
        timeout=TIMEOUT_MS,
    )
    state, panel = app.state, app.window.run_panel
    before = (state.run.embedded, state.trace, state.shown_plan, panel.embedding.rows.toPlainText())

    embed(app, qtbot, "a " * 600)

    after = (state.run.embedded, state.trace, state.shown_plan, panel.embedding.rows.toPlainText())
    assert after == before
    assert before[0] is not None
    assert app.window.answer.label.plain_text.startswith("Text ")
    assert app.window.actions_["export"].isEnabled()


@pytest.mark.slow
def test_an_embedding_that_is_no_number_is_refused_at_the_text(open_file, tmp_path, qtbot):
    app = open_file(broken(tmp_path))

    embed(app, qtbot, "hello")

    assert app.window.run_panel.problem.text().startswith("The model produced NaN in 1 of 256")
    assert app.state.run.embedded is None


@pytest.mark.slow
def test_an_encoder_has_no_words_of_prompts_and_tokens(open_file, tmp_path):
    window = open_file(encoder(tmp_path)).window
    window.run_panel.prompt.setPlainText("  ")
    tip = window.actions_["run"].toolTip()
    answer, batch = window.answer.label.plain_text, window.toolbar.batch_segment
    hidden = (batch.isHidden(), window.actions_["batch_token"].isEnabled())

    window = open_file(nano()).window

    assert tip == "Embed the text (F5): the text is empty"
    assert "copied per batch" in answer
    assert not any(word in answer for word in ("prompt", "token"))
    assert hidden == (True, False)
    assert (batch.isHidden(), window.actions_["batch_token"].isEnabled()) == (False, True)
    assert window.actions_["run"].toolTip() == "Run the prompt (F5): the prompt is empty"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1024, 640), (1024, 700), (1280, 800)])
@pytest.mark.parametrize("pooling", [CLS, NONE])
def test_nothing_of_an_embedding_is_cut_in_a_small_window(
    open_file, tmp_path, qtbot, size, pooling
):
    app = open_file(encoder(tmp_path, pooling=pooling))
    app.window.resize(*size)

    embed(app, qtbot, "hello world again")
    app.window.commands.copy_embedding()
    qtbot.wait(50)

    panel = app.window.run_panel
    result = panel.embedding
    labels = [result.facts, result.speed, result.outcome, *result.buttons.values()]
    assert all(label.height() >= label.sizeHint().height() for label in labels)
    assert result.facts.sizeHint().width() <= result.facts.width()
    assert result.rows.horizontalScrollBar().maximum() == 0
    rest = result.rows.viewport().height() - result.rows.document().documentMargin()
    assert rest >= result.rows.line_px * 2


@pytest.mark.slow
def test_what_was_said_of_a_run_goes_with_its_model(open_file, tmp_path, qtbot):
    app = open_file(nano())
    app.window.run_panel.prompt.setPlainText("word " * 4000)
    app.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: not app.controller.is_busy, timeout=TIMEOUT_MS)
    said = [message.title for message in app.window.messages.messages]

    open_file(encoder(tmp_path))

    assert any(title.startswith("The prompt is too long") for title in said)
    assert app.window.messages.messages == ()


@pytest.mark.slow
def test_a_model_without_a_graph_says_why_it_is_not_run(open_file, tmp_path):
    window = open_file(nano_with(tmp_path, general__architecture="storm")).window

    assert not window.actions_["run"].isEnabled()
    assert window.actions_["run"].toolTip().endswith("this version has no graph for this model")


@pytest.mark.slow
def test_a_model_that_writes_text_embeds_it_when_pooling_is_asked_for(open_file, qtbot):
    app = open_file(nano())
    window, planning = app.window, app.controller.planning
    planning.change(pooling=PoolingWish.LAST)
    qtbot.waitUntil(lambda: app.state.embeds, timeout=TIMEOUT_MS)
    offered = (window.run_panel.run_button.text(), window.toolbar.batch_segment.isHidden())

    embed(app, qtbot, "hello world")
    rows = app.state.run.embedded.rows
    planning.undo()
    qtbot.waitUntil(lambda: not app.state.embeds, timeout=TIMEOUT_MS)

    assert offered == ("Embed", True)
    assert rows.shape == (1, 64)
    assert window.toolbar.run_button.text() == "Run"
    assert not window.toolbar.batch_segment.isHidden()
