"""The window's start, its command line, and what happens to exceptions nobody caught."""

import sys
import threading

import pytest
from PySide6.QtGui import QImage

from app.main import main
from app.shell.exception_log import ExceptionLog, start_logging
from app.shell.screenshot import Screenshot
from engine import paths
from tests.oracle import golden

TIMEOUT_MS = 120_000


def test_the_window_runs_for_a_given_time_and_ends_its_engine(make_app):
    app = make_app("good", quit_after_s=0.2)

    assert app.exec() == 0
    assert not app.bridge._host.is_running


def test_an_unknown_size_is_refused_with_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--size", "large"])

    assert "large is not a size such as 1280x720" in capsys.readouterr().err


def test_a_file_and_the_demo_cannot_both_be_asked_for(capsys):
    with pytest.raises(SystemExit):
        main(["x.gguf", "--demo"])

    assert "not allowed with" in capsys.readouterr().err


def test_a_picture_is_taken_once_the_plan_is_shown(ready_app, qtbot, tmp_path):
    path = tmp_path / "window.png"
    ready_app.window.resize(1280, 720)
    shot = Screenshot(ready_app.controller, ready_app.window, path, after_run=False)

    with qtbot.waitSignal(shot.taken, timeout=TIMEOUT_MS):
        ready_app.controller.open(str(golden.header("smollm2-135m-q4_1")))

    assert (QImage(str(path)).width(), QImage(str(path)).height()) == (1280, 720)
    assert ready_app.state.plans is not None


@pytest.fixture
def exceptions(qapp):
    before = sys.excepthook
    log = ExceptionLog()
    log.install()
    yield log
    log.remove()
    log.deleteLater()
    assert sys.excepthook is before


def caught_from(log) -> list:
    caught: list = []
    log.caught.connect(caught.append)
    return caught


def test_an_exception_becomes_one_line_and_a_traceback(exceptions):
    caught = caught_from(exceptions)
    try:
        raise ValueError("seven")
    except ValueError:
        sys.excepthook(*sys.exc_info())

    [(line, details)] = caught
    assert line == "ValueError: seven"
    assert "test_main.py" in details


def test_an_exception_of_a_thread_is_told_in_the_gui_thread(exceptions, qtbot):
    caught = caught_from(exceptions)
    threads = []
    exceptions.caught.connect(lambda _: threads.append(threading.current_thread()))

    thread = threading.Thread(target=int, args=("x",))
    thread.start()
    thread.join()

    qtbot.waitUntil(lambda: bool(caught))
    assert caught[0][0].startswith("ValueError: invalid literal")


def test_the_log_is_a_file_in_the_cache():
    start_logging()

    assert (paths.cache_dir() / "splitscope.log").exists()
