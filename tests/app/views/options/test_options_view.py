"""The panel without an engine: what it shows, what it asks for, what it keeps."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.state.app_state import RunInfo
from app.theme.theme import ThemeChoice
from engine.core.options import DEFAULTS, FlashAttn, Options, SplitMode, TensorOverride
from engine.core.summary import RunState
from tests.app.models.paper_run import words
from tests.app.views.options.panel import Panel, model

RULE = TensorOverride(r"blk\.1\.ffn", "CPU")


@pytest.fixture
def panel(qtbot):
    panel = Panel()
    show(panel, qtbot)
    return panel


def show(panel, qtbot, width=348):
    qtbot.addWidget(panel.view)
    panel.view.resize(width, 560)
    panel.view.show()


def editor(panel):
    return panel.view.rows["tensor_overrides"].control


def add_rule(panel, pattern, memory="CPU"):
    """Add a rule as a person does."""
    editor(panel).add_button.click()
    row = editor(panel).rows[-1]
    row.pattern.setText(pattern)
    row.pattern.textEdited.emit(pattern)
    row.memory.setCurrentText(memory)
    row.pattern.editingFinished.emit()
    return row


# Values.


def test_it_shows_the_options_and_counts_those_that_were_changed(panel):
    panel.view.show_options(Options(n_gpu_layers=7, mmap=False, flash_attn=FlashAttn.OFF))
    rows = panel.view.rows

    assert rows["n_gpu_layers"].control.text() == "7"
    assert rows["mmap"].control.text() == "off"
    assert rows["flash_attn"].control.currentText() == "off"
    assert panel.view.dock_title.fact == "3 changed"
    assert not panel.asked


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [("n_gpu_layers", "7", 7), ("n_ctx", "8 192", 8192), ("devices", "none", ()),
     ("main_gpu", "1", 1), ("top_p", "0.5", 0.5)],
)  # fmt: skip
def test_what_is_typed_is_asked_for_once(panel, field, text, value):
    panel.type(field, text)
    panel.view.rows[field].control.editingFinished.emit()

    assert panel.asked == [{field: value}]


def test_switches_and_choices_are_asked_for(panel):
    panel.view.rows["repack"].control.click()
    choice = panel.view.rows["cache_type_k"].control
    choice.setCurrentText("q8_0")
    choice.activated.emit(choice.currentIndex())

    assert panel.asked == [{"repack": False}, {"cache_type_k": "q8_0"}]


def test_a_value_out_of_bounds_stays_with_its_reason_and_is_not_asked_for(panel):
    panel.type("n_ubatch", "0")
    row = panel.view.rows["n_ubatch"]

    words = "It must be at least 1. Run uses the plan that is shown, without it."
    assert (row.control.text(), row.note.text()) == ("0", words)
    assert row.control.property("bad") is True
    assert row.control.accessibleDescription() == words
    assert not panel.asked


def test_refused_shares_come_with_an_example(panel):
    panel.type("tensor_split", "abc")

    assert "For example: 3,1 gives the first GPU" in panel.view.rows["tensor_split"].note.text()


def test_esc_forgets_what_was_refused(panel, qtbot):
    panel.type("n_ubatch", "0")
    row = panel.view.rows["n_ubatch"]

    qtbot.keyClick(row.control, Qt.Key.Key_Escape)

    assert (row.control.text(), row.problem) == ("512", "")
    assert row.control.property("bad") is False


def test_a_refused_text_stays_while_other_options_change(panel):
    panel.type("n_ubatch", "0")

    panel.view.show_options(Options(n_gpu_layers=3))

    assert panel.view.rows["n_ubatch"].control.text() == "0"


def test_a_refused_text_goes_with_its_model(panel):
    panel.type("n_ubatch", "0")

    panel.state.set_model(replace(model(), path="/m/other.gguf"))

    assert panel.view.rows["n_ubatch"].control.text() == "512"
    assert panel.view.rows["n_ubatch"].problem == ""


def test_what_the_engine_refuses_is_said_at_its_field_with_the_input(panel):
    before = Options(split_mode=SplitMode.NONE)
    panel.view.show_options(before)
    panel.view.open_only(())

    is_shown = panel.view.show_refusal(
        replace(before, main_gpu=3), before, "There is no GPU number 3."
    )

    row = panel.view.rows["main_gpu"]
    assert is_shown
    assert (row.control.text(), row.note.text()) == (
        "3", "There is no GPU number 3. Run uses the plan that is shown, without it.",
    )  # fmt: skip
    assert panel.view.open_sections == ("layers",)


def test_a_change_that_was_dropped_unplanned_is_not_shown_any_more(panel):
    panel.type("n_ubatch", "64")

    panel.view.show_options(DEFAULTS)

    assert panel.view.rows["n_ubatch"].control.text() == "512"


def test_a_refusal_nobody_sees_is_not_taken(panel):
    panel.view.hide()

    assert not panel.view.show_refusal(Options(main_gpu=3), DEFAULTS, "No.")


def test_the_arrow_takes_an_option_back_to_its_default(panel, qtbot):
    panel.view.show_options(Options(n_gpu_layers=7))
    row = panel.view.rows["n_gpu_layers"]
    assert row.reset.isVisible()
    assert not panel.view.rows["devices"].reset.isVisible()

    qtbot.mouseClick(row.reset, Qt.MouseButton.LeftButton)

    assert panel.asked == [{"n_gpu_layers": -1}]


def test_the_arrow_of_a_refused_text_forgets_it(panel, qtbot):
    panel.type("main_gpu", "many")
    row = panel.view.rows["main_gpu"]

    row.reset.click()

    assert (row.control.text(), row.problem, panel.asked) == ("0", "", [])


# Rules.


def test_a_rule_is_counted_while_it_is_typed_and_asked_for_when_it_is_done(panel):
    editor(panel).add_button.click()
    row = editor(panel).rows[-1]
    row.pattern.setText("ffn_up")
    row.pattern.textEdited.emit("ffn_up")
    assert words(row.note.text()) == "matches 3 tensors, 3.00 MiB"
    assert not panel.asked

    row.pattern.editingFinished.emit()

    assert panel.asked == [{"tensor_overrides": (TensorOverride("ffn_up", "CPU"),)}]


def test_a_broken_rule_is_named_kept_and_not_used_while_the_others_are(panel):
    add_rule(panel, "ffn_(up")
    assert not panel.asked
    add_rule(panel, r"blk\.1\.ffn")
    panel.view.show_options(Options(tensor_overrides=(RULE,)))

    broken, good = editor(panel).rows
    assert panel.asked == [{"tensor_overrides": (RULE,)}]
    assert (broken.pattern.text(), broken.pattern.property("bad")) == ("ffn_(up", True)
    assert "at character 5" in broken.note.text()
    assert good.pattern.property("bad") is False


def test_a_rule_that_is_removed_is_asked_away(panel):
    panel.view.show_options(Options(tensor_overrides=(RULE,)))

    editor(panel).rows[0].remove.click()

    assert panel.asked == [{"tensor_overrides": ()}]
    assert editor(panel).rows == []


def test_the_memory_of_a_rule_is_one_of_the_devices(panel):
    memory = add_rule(panel, "ffn").memory

    assert [memory.itemText(i) for i in range(memory.count())] == ["OpenCL0", "CPU"]


def test_rules_as_the_command_line_spells_them_may_be_pasted(panel):
    add_rule(panel, r"blk\.1\.ffn=CPU,attn=OpenCL0")

    assert panel.asked == [{"tensor_overrides": (RULE, TensorOverride("attn", "OpenCL0"))}]
    assert [row.pattern.text() for row in editor(panel).rows] == [RULE.pattern, "attn"]


def test_undo_puts_the_rules_of_before_back(panel):
    add_rule(panel, "ffn")
    panel.view.show_options(Options(tensor_overrides=(TensorOverride("ffn", "CPU"),)))

    panel.view.show_options(DEFAULTS)

    assert editor(panel).rows == []


# What has no effect.


def test_experts_are_disabled_with_the_reason_where_a_model_has_none(panel):
    for field in ("cpu_moe", "n_cpu_moe"):
        row = panel.view.rows[field]
        assert not row.control.isEnabled()
        assert row.note.text() == "This model has no experts."


def test_experts_are_enabled_where_a_model_has_some(qtbot):
    panel = Panel(n_expert=4)
    show(panel, qtbot)

    assert panel.view.rows["cpu_moe"].control.isEnabled()
    assert panel.view.rows["n_cpu_moe"].control.isEnabled()
    assert panel.view.rows["n_cpu_moe"].note.text() == "of 30 layers"


def test_a_run_in_progress_says_when_a_change_acts(panel):
    assert not panel.view.running.isVisible()

    panel.state.set_run(RunInfo(state=RunState.GENERATING))

    assert panel.view.running.isVisible()
    assert "applies at the next run" in panel.view.running.text()


# Sections.


def test_sections_fold_and_say_what_was_changed_in_them(panel, qtbot):
    panel.view.show_options(Options(repack=False, mmap=False))
    section = panel.view.sections["cpu_memory"]
    assert section.head.accessibleDescription() == "2 changed"
    assert not panel.view.rows["repack"].isVisible()

    with qtbot.waitSignal(panel.view.folded) as folded:
        qtbot.keyClick(section.head, Qt.Key.Key_Space)

    assert panel.view.rows["repack"].isVisible()
    assert folded.args == [("layers", "cpu_memory")]


@pytest.mark.parametrize("theme", [ThemeChoice.LIGHT, ThemeChoice.DARK])
@pytest.mark.parametrize("width", [320, 380])
def test_nothing_is_cut_in_any_section(qtbot, theme, width):
    panel = Panel(theme, n_expert=4)
    show(panel, qtbot, width)
    panel.view.open_only(tuple(panel.view.sections))
    add_rule(panel, "ffn_(up")
    add_rule(panel, "ffn_up")
    panel.type("n_ubatch", "0")
    qtbot.wait(50)

    body = panel.view.area.widget()
    assert body.width() <= panel.view.area.viewport().width()
    for part in [*panel.view.findChildren(QLabel), *panel.view.findChildren(QPushButton)]:
        if not part.isVisible():
            continue
        needed = part.heightForWidth(part.width()) if part.hasHeightForWidth() else 0
        assert part.height() >= needed, part.text()
        if not part.hasHeightForWidth():
            assert part.width() >= part.minimumSizeHint().width(), part.text()
        right = part.mapTo(panel.view, part.rect().topRight()).x()
        assert right < panel.view.width(), part.text()


def test_a_wheel_that_passes_by_changes_nothing(panel):
    box = panel.view.rows["split_mode"].control
    down = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    before = box.currentText()

    QApplication.sendEvent(box, down)

    assert (box.currentText(), panel.asked) == (before, [])
    assert not down.isAccepted()
