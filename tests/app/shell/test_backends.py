"""Backends in the whole window with a real engine: load, unload, undo, crash, every start."""

import json

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication

from app.models.device_entries import Presence, entry_of
from app.shell.backends import DIED_LOADING, DIED_WITH_IT
from app.shell.file_dialog import FileDialog
from app.shell.panes import DEVICES, LOAD_REPORT, make_view
from engine import paths
from engine.core.load_report import Outcome
from engine.core.summary import RunState
from engine.service.messages import LoadBackend
from tests.engine.backends.ggml.libraries import cpu_library
from tests.engine.nano import nano
from tests.engine.plugins import write_plugin

TIMEOUT_MS = 120_000
TEMPLATE = str(paths.resources_dir() / "templates" / "splitscope_backend_slow.py")

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(make_app, qtbot):
    """Return a window with all panes and the small model open."""
    app = make_app(make=make_view)
    app.controller.open(nano())
    qtbot.waitUntil(lambda: app.state.plans is not None, timeout=TIMEOUT_MS)
    return app


def load(app, qtbot, *files):
    app.window.commands.load_backends([str(file) for file in files])
    settle(app, qtbot)


def settle(app, qtbot):
    """Wait until nothing is loaded, planned or opened any more."""
    planning = app.controller.planning
    qtbot.waitUntil(
        lambda: (
            app.controller.is_ready
            and not app.controller.backends.is_loading
            and not app.controller.is_busy
            and planning._under_way is None
            and planning._wanted is None
        ),
        timeout=TIMEOUT_MS,
    )


def names(app):
    return [device.name for device in app.state.devices]


def planned(app):
    return [row.name for row in app.state.plans.prompt.devices]


def titles(app):
    return [message.title for message in app.window.messages.messages]


def trigger(app, qtbot, *ids):
    for action_id in ids:
        app.window.actions_[action_id].trigger()
        settle(app, qtbot)


def kill_engine(app, qtbot):
    process = app.bridge._host._child._process
    process.kill()
    qtbot.waitUntil(lambda: app.bridge._host._child._process is not process, timeout=TIMEOUT_MS)


# Load.


def test_a_plug_in_is_a_device_of_table_plan_and_options_at_once(opened, qtbot):
    load(opened, qtbot, TEMPLATE)

    state, window = opened.state, opened.window
    assert "Slow" in names(opened)
    assert "Slow" in planned(opened)
    assert state.device == "Slow"
    assert titles(opened) == ["Slow is here, loaded from splitscope_backend_slow.py."]
    assert window.change_bar.facts.plain_text.startswith("Slow loaded")
    assert "Slow" in window.options.rows["devices"].note.text()
    assert window.area.docks["bottom_dock"].shown_view is window.area.views[DEVICES]


def test_undo_takes_it_out_and_redo_brings_it_back(opened, qtbot):
    before = planned(opened)
    load(opened, qtbot, TEMPLATE)

    assert opened.window.actions_["undo"].text() == "Undo load splitscope_backend_slow.py"
    trigger(opened, qtbot, "undo")
    assert "Slow" not in names(opened)
    assert planned(opened) == before
    assert opened.state.diff is None
    assert titles(opened) == []

    trigger(opened, qtbot, "redo")
    assert "Slow" in planned(opened)
    assert opened.state.diff is not None


def test_options_that_name_it_do_so_no_longer_when_it_is_gone(opened, qtbot):
    load(opened, qtbot, TEMPLATE)
    opened.controller.planning.change(devices=("Slow",))
    settle(opened, qtbot)

    opened.state.choose_device("Slow")
    trigger(opened, qtbot, "unload_backend", "unload_backend")

    assert opened.state.plans.options.devices is None
    assert "Slow" not in planned(opened)


def test_a_plug_in_that_ends_its_process_is_refused_and_nothing_else_happens(
    opened, qtbot, tmp_path
):
    before = names(opened)

    load(opened, qtbot, write_plugin(tmp_path, "x", before="import os; os.abort()"))

    assert titles(opened) == ["splitscope_backend_x.py: no backend was loaded."]
    assert "SIGABRT" in opened.window.messages.messages[0].sentence
    assert names(opened) == before
    opened.window.actions_["show_load_report"].trigger()
    report = opened.window.load_report
    assert report.rows.attempts()[-1].outcome is Outcome.REFUSED
    assert opened.window.area.docks["bottom_dock"].shown_view is report


def test_what_is_dropped_on_the_window_is_loaded(opened, qtbot, tmp_path):
    path = write_plugin(tmp_path, "dropped")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    drop = QDropEvent(
        QPointF(9, 9), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip

    opened.window.dropEvent(drop)
    settle(opened, qtbot)

    assert "DROPPED" in names(opened)


def test_a_folder_gives_its_best_variant(opened, qtbot, tmp_path):
    write_plugin(tmp_path, "v", "low", score=1)
    write_plugin(tmp_path, "v", "high", score=7)

    load(opened, qtbot, tmp_path)

    assert opened.state.device_of("V").origin.score == 7
    assert opened.window.messages.messages[0].sentence == "1 other file was not chosen."


def test_a_real_library_of_ggmls_can_be_loaded_planned_and_taken_out(opened, qtbot):
    load(opened, qtbot, cpu_library())
    assert "ggml-CPU" in planned(opened)

    trigger(opened, qtbot, "undo")

    assert "ggml-CPU" not in planned(opened)


def test_without_a_model_the_devices_are_a_page_with_a_way_back(ready_app, qtbot, tmp_path):
    window = ready_app.window
    load(ready_app, qtbot, write_plugin(tmp_path, "y"))

    assert window.pages.currentWidget() is window.devices_page
    assert ready_app.state.device == "Y"

    window.devices_page.back_button.click()
    assert window.pages.currentWidget() is window.welcome

    window.welcome.devices_button.click()
    assert window.pages.currentWidget() is window.devices_page
    qtbot.keyClick(window.devices_page.devices.table, Qt.Key.Key_Escape)
    assert window.pages.currentWidget() is window.welcome


# Unload.


def test_a_backend_in_use_is_taken_out_on_the_second_asking(opened, qtbot):
    load(opened, qtbot, TEMPLATE)

    trigger(opened, qtbot, "unload_backend")
    assert titles(opened) == ["Slow is in use."]
    assert "Slow" in names(opened)

    trigger(opened, qtbot, "unload_backend")
    assert titles(opened) == ["Slow is unloaded."]
    assert "Slow" not in planned(opened)
    assert opened.window.change_bar.facts.plain_text.startswith("Slow unloaded")

    trigger(opened, qtbot, "undo")
    assert "Slow" in planned(opened)


def test_a_built_in_backend_cannot_be_unloaded_and_the_tooltip_says_why(opened):
    opened.state.choose_device("CPU")

    action = opened.window.actions_["unload_backend"]

    assert not action.isEnabled()
    assert action.toolTip().endswith("the selected device is built in, or not here")


def test_nothing_is_unloaded_under_a_run(opened, qtbot):
    load(opened, qtbot, TEMPLATE)
    opened.window.run_panel.n_predict.setValue(4000)
    opened.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: opened.state.run.state is RunState.GENERATING, timeout=TIMEOUT_MS)

    opened.controller.backends.unload("Slow")

    assert titles(opened)[0] == "Slow cannot be unloaded now."
    assert not opened.window.actions_["unload_backend"].isEnabled()
    assert not opened.controller.planning.can_step(back=True)
    trigger(opened, qtbot, "stop")
    assert opened.controller.planning.can_step(back=True)
    assert "Slow" in names(opened)


# The engine ends.


def test_after_a_death_it_is_loaded_again_before_the_model_is_opened(opened, qtbot):
    load(opened, qtbot, TEMPLATE)
    opened.controller.planning.change(devices=("Slow",))
    settle(opened, qtbot)

    kill_engine(opened, qtbot)
    settle(opened, qtbot)

    assert "Slow" in planned(opened)
    assert opened.state.plans.options.devices == ("Slow",)
    assert titles(opened)[0] == "The engine stopped and was restarted."
    assert not any("not loaded" in title for title in titles(opened))


def test_a_file_that_is_gone_after_a_death_is_said_to_be_missing(opened, qtbot, tmp_path):
    path = write_plugin(tmp_path, "z")
    load(opened, qtbot, path)
    path.unlink()

    kill_engine(opened, qtbot)
    settle(opened, qtbot)

    assert titles(opened)[0] == "splitscope_backend_z.py: not loaded this time."
    assert "There is no such file" in opened.window.messages.messages[0].sentence
    assert "Z" not in planned(opened)


def test_what_was_being_loaded_when_the_engine_ended_is_not_tried_again(opened, qtbot, tmp_path):
    path = write_plugin(tmp_path, "hangs", before="import time; time.sleep(60)")
    opened.controller.backends.load([str(path)])

    kill_engine(opened, qtbot)
    settle(opened, qtbot)

    assert "stopped while loading splitscope_backend_hangs.py" in " ".join(titles(opened))
    message = next(m for m in opened.window.messages.messages if "not loaded" in m.title)
    assert message.sentence.rstrip(".").lower() == DIED_LOADING
    assert opened.state.loaded.by_hand == ()


def test_what_an_engine_does_not_survive_twice_is_left_out(opened, qtbot):
    load(opened, qtbot, TEMPLATE)
    backends = opened.controller.backends
    backends._is_proven = False  # As after a restart whose first plan has not come yet.

    kill_engine(opened, qtbot)
    settle(opened, qtbot)

    message = next(m for m in opened.window.messages.messages if "not loaded" in m.title)
    assert message.sentence.rstrip(".").lower() == DIED_WITH_IT
    assert "Slow" not in planned(opened)


# Every start.


def test_a_file_is_loaded_at_every_start_once_a_person_says_so(opened, qtbot, settings, make_app):
    load(opened, qtbot, TEMPLATE)
    assert settings.start_backends == ()

    opened.window.devices.at_start.click()
    assert settings.start_backends == (TEMPLATE,)

    second = make_app()
    settle(second, qtbot)
    assert "Slow" in names(second)
    assert titles(second) == []


def test_a_file_of_every_start_that_is_gone_is_listed_and_can_be_taken_back(
    make_app, qtbot, settings, tmp_path
):
    path = str(tmp_path / "splitscope_backend_gone.py")
    settings.start_backends = (path,)
    app = make_app()
    settle(app, qtbot)
    assert titles(app) == ["splitscope_backend_gone.py: not loaded this time."]
    app.state.choose_device(path)
    assert entry_of(app.state, path).presence is Presence.NOT_LOADED

    app.window.devices.at_start.click()

    assert settings.start_backends == ()
    assert entry_of(app.state, path) is None


def test_a_file_that_others_may_write_is_not_remembered(opened, qtbot, settings, tmp_path):
    path = write_plugin(tmp_path, "open")
    path.chmod(0o666)
    load(opened, qtbot, path)

    opened.window.devices.at_start.click()

    assert settings.start_backends == ()
    assert not opened.window.devices.at_start.isChecked()
    assert "splitscope_backend_open.py: not loaded at every start." in titles(opened)


def test_a_file_of_every_start_that_others_may_write_by_now_is_not_run(
    make_app, qtbot, settings, tmp_path
):
    path = write_plugin(tmp_path, "late")
    path.chmod(0o666)
    settings.start_backends = (str(path),)

    app = make_app()
    settle(app, qtbot)

    assert "LATE" not in names(app)
    assert "others may write the file" in app.window.messages.messages[0].sentence


def test_a_link_is_loaded_by_its_own_name(ready_app, qtbot, tmp_path):
    file = write_plugin(tmp_path, "linked").rename(tmp_path / "plugin.1")
    link = tmp_path / "splitscope_backend_linked.py"
    link.symlink_to(file)

    load(ready_app, qtbot, link)

    assert ready_app.state.device_of("LINKED").origin.place == str(link)


def test_a_picture_depends_on_nothing_that_is_remembered(make_app, qtbot, settings):
    settings.start_backends = (TEMPLATE,)

    app = make_app(recalls=False)
    settle(app, qtbot)

    assert "Slow" not in names(app)


# Copy, panes.


def test_a_device_is_copied_as_text_and_as_json(ready_app):
    ready_app.state.choose_device("CPU")

    ready_app.window.actions_["copy_device"].trigger()
    assert "how it got here  static, from engine.backends.cpu.reg" in clipboard()

    ready_app.window.actions_["copy_device_json"].trigger()
    assert json.loads(clipboard())["origin"]["backend"] == "cpu"


def clipboard():
    return QGuiApplication.clipboard().text()


def test_reset_layout_takes_the_panes_away_that_were_asked_for(opened):
    window = opened.window
    window.actions_["show_devices"].trigger()
    window.actions_["show_load_report"].trigger()
    assert {DEVICES, LOAD_REPORT} <= set(window.area.views)

    window.actions_["reset_layout"].trigger()

    assert not {DEVICES, LOAD_REPORT} & set(window.area.views)
    window.actions_["show_devices"].trigger()
    assert window.area.docks["bottom_dock"].shown_view is window.devices
    assert window.devices.isVisible()


def test_the_dialog_asks_for_files_where_the_last_one_came_from(opened, qtbot, monkeypatch):
    load(opened, qtbot, TEMPLATE)
    sent = []
    monkeypatch.setattr(opened.bridge, "send", sent.append)

    opened.window.actions_["load_backend"].trigger()
    dialog = next(d for d in opened.window.findChildren(FileDialog))
    assert dialog.directory().absolutePath().endswith("templates")
    dialog.filesSelected.emit([TEMPLATE])
    dialog.reject()

    assert [type(request) for request in sent] == [LoadBackend]
