"""Checking operations in the whole window with a real engine."""

import pytest

from app.shell.panes import OPERATIONS
from engine.core.op_matrix import OpState
from tests.engine.nano import nano

TIMEOUT_MS = 120_000

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(ready_app, qtbot):
    """Return a window with the small model open."""
    ready_app.controller.open(nano())
    qtbot.waitUntil(lambda: ready_app.state.plans is not None, timeout=TIMEOUT_MS)
    return ready_app


def wait_for_end(app, qtbot):
    qtbot.waitUntil(lambda: not app.state.ops.is_checking, timeout=TIMEOUT_MS)


def test_every_operation_of_the_model_is_checked_on_every_device(opened, qtbot):
    labels = []
    opened.controller.checking.progress.connect(labels.append)

    opened.window.actions_["check_ops"].trigger()
    assert opened.state.engine_text == "checking"
    wait_for_end(opened, qtbot)

    matrix = opened.state.ops.matrix
    assert matrix.devices == tuple(device.name for device in opened.state.devices)
    assert "MUL_MAT" in {row.op for row in matrix.rows}
    assert all(verdict.state is OpState.OK for verdict in matrix.verdicts("CPU"))
    assert labels[0].label.endswith(f"on {matrix.devices[0]}")
    assert labels[-1] is None
    view = opened.window.operations
    assert opened.window.area.docks["bottom_dock"].shown_view is view
    assert opened.window.area.views[OPERATIONS] is view
    assert view.rows.rowCount() == len(matrix.rows)


def test_a_check_can_be_stopped_and_what_was_found_is_shown(opened, qtbot):
    checking, actions = opened.controller.checking, opened.window.actions_
    opened.window.operations.with_speed.setChecked(True)
    actions["check_ops"].trigger()
    with qtbot.waitSignal(checking.progress, timeout=TIMEOUT_MS):
        pass
    assert not actions["run"].isEnabled()
    assert not actions["unload_backend"].isEnabled()
    assert "checking" in checking.doing

    actions["stop"].trigger()
    wait_for_end(opened, qtbot)

    matrix = opened.state.ops.matrix
    assert matrix.is_stopped
    assert OpState.NOT_CHECKED in {verdict.state for verdict in matrix.verdicts("CPU")}
    assert actions["check_ops"].isEnabled()


def test_an_engine_that_ends_in_a_check_leaves_nothing_waiting(opened, qtbot):
    opened.window.actions_["check_ops"].trigger()
    with qtbot.waitSignal(opened.controller.checking.progress, timeout=TIMEOUT_MS):
        pass

    opened.bridge._host._child._process.kill()
    wait_for_end(opened, qtbot)

    title = opened.window.messages.messages[0].title
    assert title.startswith("The engine stopped while checking ")
    assert opened.state.ops.matrix is None


def test_without_a_plan_there_is_nothing_to_check(ready_app):
    action = ready_app.window.actions_["check_ops"]

    assert not action.isEnabled()
    assert action.toolTip().endswith("open a model first")
