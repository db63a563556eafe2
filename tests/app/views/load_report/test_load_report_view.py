import json

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication

from app.models.load_report_model import Column
from app.state.app_state import AppState
from app.theme.theme import Theme, ThemeChoice
from app.views import load_report
from app.views.load_report.view import ALL, EMPTY, ONLY_MISSING
from engine.core.load_report import LoadReport
from tests.app.models.device_facts import DEVICES, REPORT
from tests.app.views.action_set import Asked


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_devices(DEVICES, (), REPORT)
    return state


@pytest.fixture
def view(qtbot, state):
    theme = Theme(ThemeChoice.DARK)
    view = load_report.make(state, theme, Asked(theme).actions)
    qtbot.addWidget(view)
    view.resize(1280, 232)
    view.show()
    return view


def outcomes(view):
    rows = view.rows
    return [rows.index(row, Column.OUTCOME).data() for row in range(rows.rowCount())]


def click_head(view, qtbot, column):
    header = view.table.horizontalHeader()
    place = QPoint(header.sectionViewportPosition(column) + 8, 8)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=place)


def test_what_was_found_is_shown_and_all_on_asking(view):
    assert view.dock_title.fact == "4 of 5 paths"

    view.filter.button(ALL).click()

    assert view.dock_title.fact == "5 paths"
    assert outcomes(view)[-1] == "not found"


def test_the_selected_path_stands_below_with_every_word(view):
    view.table.selectRow(3)

    assert view.words.text().startswith("/plugins/libggml-cuda.so\nrefused: libcudart.so.12")
    assert "shared object" in view.words.text()


def test_a_head_sorts_turns_round_and_gives_the_first_order_back(view, qtbot):
    first = outcomes(view)
    orders = []
    for _ in range(3):
        click_head(view, qtbot, Column.OUTCOME)
        orders.append(outcomes(view))

    assert orders[0] == sorted(first)
    assert orders[1] == sorted(first, reverse=True)
    assert orders[2] == first


def test_shown_rows_and_the_whole_report_are_copied(view):
    view.copy_button.click()
    assert len(QGuiApplication.clipboard().text().split("\n")) == 5

    view.json_button.click()
    copied = json.loads(QGuiApplication.clipboard().text())
    assert copied["attempts"][0]["outcome"] == "registered"
    assert len(copied["attempts"]) == 5


def test_an_empty_report_and_one_of_missing_paths_say_so(view, state):
    state.set_devices(DEVICES, (), LoadReport(REPORT.attempts[-1:]))
    assert view._empty.text() == ONLY_MISSING

    state.set_devices(DEVICES, (), LoadReport())

    assert view._empty.text() == EMPTY
    assert not view.copy_button.isEnabled()


def test_nothing_but_paths_and_reasons_is_ever_cut(view):
    for column in set(Column) - {Column.FILE, Column.FOLDER, Column.REASON}:
        assert view.table.columnWidth(column) >= view.table.sizeHintForColumn(column)


def test_without_rows_the_buttons_stay_at_the_foot(view, state, qtbot):
    foot_px = view.height() - view.copy_button.mapTo(view, QPoint(0, 0)).y()

    state.set_devices(DEVICES, (), LoadReport())

    qtbot.waitUntil(
        lambda: view.height() - view.copy_button.mapTo(view, QPoint(0, 0)).y() == foot_px
    )
