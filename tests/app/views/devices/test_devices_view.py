import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel

from app.models.cells import LOOK_ROLE
from app.models.devices_model import Column
from app.state.app_state import AppState, LoadedFiles
from app.theme.text import NOTHING
from app.theme.theme import Theme, ThemeChoice
from app.views import devices
from engine.core.summary import Progress
from tests.app.models import paper_run
from tests.app.models.device_facts import DEVICES, REPORT, SLOW_PATH, UNAVAILABLE
from tests.app.views.action_set import Asked


@pytest.fixture
def theme(qapp):
    return Theme(ThemeChoice.LIGHT)


@pytest.fixture
def asked(theme):
    return Asked(theme)


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_devices(DEVICES, UNAVAILABLE, REPORT)
    state.set_plans(paper_run.plans())
    return state


@pytest.fixture
def view(qtbot, state, theme, asked):
    view = devices.make(state, theme, asked.actions)
    qtbot.addWidget(view)
    view.resize(1280, 232)
    view.show()
    return view


def names(view):
    return [view.model.index(row, 0).data() for row in range(view.model.rowCount())]


def card_words(view):
    return "\n".join(label.text().replace("\u200b", "") for label in view.card.findChildren(QLabel))


def test_the_model_keeps_qts_rules(view, qtmodeltester):
    qtmodeltester.check(view.model)


def test_every_device_and_what_is_left_out_is_listed(view):
    assert names(view) == ["OpenCL0", "BLAS", "Slow", "CPU", "vulkan", "OpenCL1"]
    assert view.dock_title.fact == "4 devices, 2 not used"


def test_a_backend_of_the_plan_has_its_badge(view):
    looks = [view.model.index(row, Column.NAME).data(LOOK_ROLE) for row in range(4)]

    assert [look and look.letter for look in looks] == ["G", None, None, "C"]


def test_one_is_selected_from_the_start_and_its_card_is_shown(view, state):
    assert state.device == "OpenCL0"
    assert "OpenCL0 of a test" in card_words(view)


def test_a_row_selects_a_device_and_a_selection_from_elsewhere_its_row(view, state):
    view.table.selectRow(2)
    assert state.device == "Slow"
    assert SLOW_PATH in card_words(view)

    state.choose_device("vulkan")

    assert view.table.selectionModel().selectedRows()[0].row() == 4
    assert "No driver was found." in card_words(view)


def test_a_device_that_is_gone_leaves_the_first_one_selected(view, state):
    state.choose_device("Slow")

    state.set_devices(DEVICES[:2], (), REPORT)

    assert state.device == "OpenCL0"
    assert names(view) == ["OpenCL0", "BLAS"]


def test_a_file_that_was_loaded_by_hand_can_be_loaded_at_every_start(view, state, qtbot):
    state.choose_device("Slow")
    assert view.at_start.isHidden()
    state.set_loaded(LoadedFiles(by_hand=(SLOW_PATH,)))
    assert not view.at_start.isHidden()

    with qtbot.waitSignal(view.start_asked) as asked:
        view.at_start.click()

    assert asked.args == [(SLOW_PATH, True)]


def test_a_file_of_every_start_that_failed_can_be_taken_back(view, state, qtbot):
    path = "/plugins/libggml-cuda.so"
    state.set_loaded(LoadedFiles(at_start=(path,)))
    state.choose_device(path)
    assert view.at_start.isChecked()

    with qtbot.waitSignal(view.start_asked) as asked:
        view.at_start.click()

    assert asked.args == [(path, False)]


def test_buttons_are_the_commands(view, asked):
    for button in view.buttons.values():
        button.click()

    assert asked.ids == [
        "load_backend", "load_backend_folder", "unload_backend", "copy_device",
        "copy_device_json", "manual_backends",
    ]  # fmt: skip


def test_ctrl_c_copies_the_selected_row(view, qtbot):
    view.table.selectRow(4)

    qtbot.keyClick(view.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)

    cells = QGuiApplication.clipboard().text().split("\t")
    assert cells[:6] == ["vulkan", *4 * [NOTHING], "not here"]


def test_what_is_being_loaded_is_said(view):
    view.job_row.show_progress(Progress("Trying x.so", 0, 0))

    assert view.job_row.isVisible()
    assert view.job_row.label.text() == "Trying x.so"


@pytest.mark.parametrize("width", [1024, 1280, 1600])
def test_names_types_and_places_in_the_plan_are_never_cut(view, width):
    view.resize(width, 232)

    for column in (Column.NAME, Column.TYPE, Column.FREE, Column.PLAN):
        assert not view.table.isColumnHidden(column)
        assert view.table.columnWidth(column) >= view.table.sizeHintForColumn(column)
    used = sum(view.table.columnWidth(column) for column in Column)
    assert used <= view.table.viewport().width()
    footer = [*view.buttons.values(), view.at_start]
    assert all(b.width() >= b.minimumSizeHint().width() for b in footer if b.isVisible())
