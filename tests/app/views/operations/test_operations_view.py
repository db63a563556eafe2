import json

import pytest
from PySide6.QtGui import QGuiApplication

from app.models.op_matrix_model import Shown
from app.state.app_state import AppState, OpsInfo
from app.theme.theme import Theme, ThemeChoice
from app.views import operations
from app.views.operations.view import CHECKING, EMPTY, NONE_SHOWN
from engine.core.op_matrix import OpMatrix
from tests.app.models.op_facts import MATRIX
from tests.app.views.action_set import Asked


@pytest.fixture
def theme(qapp):
    return Theme(ThemeChoice.LIGHT)


@pytest.fixture
def asked(theme):
    return Asked(theme)


@pytest.fixture
def state(qapp):
    return AppState()


@pytest.fixture
def view(qtbot, state, theme, asked):
    view = operations.make(state, theme, asked.actions)
    qtbot.addWidget(view)
    view.resize(1280, 232)
    view.show()
    return view


def test_before_a_check_it_says_what_one_does(view):
    assert view.empty.text() == EMPTY
    assert not view.table.isVisible()
    assert not view.copy_button.isEnabled()


def test_a_check_under_way_can_be_stopped_and_keeps_the_focus(view, state, asked):
    view.activateWindow()
    view.buttons["check_ops"].setFocus()

    state.set_ops(OpsInfo(is_checking=True))

    assert view.empty.text() == CHECKING
    assert view.buttons["stop"].hasFocus()
    view.buttons["stop"].click()
    assert asked.ids == ["stop"]
    state.set_ops(OpsInfo(matrix=MATRIX))
    assert view.buttons["stop"].isHidden()
    assert view.buttons["check_ops"].hasFocus()


def test_what_was_found_is_counted_and_narrowed_down(view, state):
    state.set_ops(OpsInfo(matrix=MATRIX))
    assert view.dock_title.fact == "4 cases, 2 faults, stopped early"
    assert view.filter.button(Shown.FAULTS).text() == "Faults 2"

    view.filter.button(Shown.UNSUPPORTED).click()

    assert [row.op for row in view.rows.rows()] == ["GET_ROWS"]


def test_the_selected_case_stands_below_with_every_device(view, state):
    state.set_ops(OpsInfo(matrix=MATRIX))

    view.table.selectRow(1)

    assert view.words.text().startswith("ROPE f32, f32 [64, 9, 512]\nOpenCL0: wrong")
    assert "the error is above the bar" in view.words.text()


def test_nothing_to_show_is_said_in_words(view, state):
    state.set_ops(OpsInfo(matrix=OpMatrix(MATRIX.devices, MATRIX.rows[:1])))

    view.filter.button(Shown.FAULTS).click()

    assert view.empty.text() == NONE_SHOWN[Shown.FAULTS]


def test_a_table_and_all_of_it_as_json_are_copied(view, state):
    state.set_ops(OpsInfo(matrix=MATRIX))

    view.copy_button.click()
    assert QGuiApplication.clipboard().text().count("\n") == 4

    view.json_button.click()
    assert json.loads(QGuiApplication.clipboard().text())["rows"][1]["verdicts"][0]["state"] == (
        "wrong"
    )


def test_another_model_takes_its_matrix_away(view, state):
    state.set_ops(OpsInfo(matrix=MATRIX))

    state.set_model(None)

    assert view.rows.rowCount() == 0
    assert view.empty.text() == EMPTY


def test_no_verdict_is_cut_at_the_least_width(view, state):
    state.set_ops(OpsInfo(matrix=MATRIX))
    view.resize(1024, 200)

    for column in range(view.rows.columnCount()):
        is_shape = column == 2
        wide = view.table.columnWidth(column) >= view.table.sizeHintForColumn(column)
        assert wide or is_shape, column
