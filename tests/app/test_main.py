"""The window's start, its command line, and what happens to exceptions nobody caught."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from app.main import main
from app.shell.exception_log import ExceptionLog, start_logging
from engine import paths
from tests.oracle import golden

ROOT = Path(__file__).parents[2]


def start(*args: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own: an application that has quit cannot go on here."""
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *args], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.mark.e2e
def test_the_window_runs_for_a_given_time_and_ends_its_engine():
    script = "from app.main import create_app; a = create_app(quit_after_s=1)"

    done = start("-c", f"{script}; raise SystemExit(a.exit_code or a.bridge._host.is_running)")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.e2e
def test_the_command_line_takes_a_picture_of_a_file(tmp_path):
    path = tmp_path / "window.png"
    model = str(golden.header("smollm2-135m-q4_1"))

    done = start("-m", "app", model, "--theme", "dark", "--size", "1280x720",
                 "--screenshot", str(path))  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert (QImage(str(path)).width(), QImage(str(path)).height()) == (1280, 720)


@pytest.mark.e2e
def test_a_file_that_is_no_model_ends_a_picture_with_its_message(tmp_path):
    model = tmp_path / "bad.gguf"
    model.write_bytes(b"not a model")

    done = start("-m", "app", str(model), "--screenshot", str(tmp_path / "x.png"))

    assert done.returncode == 1
    assert "Cannot open bad.gguf" in done.stderr
    assert not (tmp_path / "x.png").exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "why"),
    [("gone/x.png", "This folder does not exist"), ("picture", "Unsupported image format")],
)
def test_a_picture_that_cannot_be_written_ends_with_its_reason(tmp_path, name, why):
    done = start("-m", "app", "--screenshot", str(tmp_path / name))

    assert done.returncode == 1
    assert why in done.stderr


@pytest.mark.parametrize("size", ["99999x99999", "0x600", "16385x10"])
def test_a_size_no_screen_has_is_refused(capsys, size):
    with pytest.raises(SystemExit):
        main(["--size", size])

    assert f"{size}: each side has 1 to 16384 pixels" in capsys.readouterr().err


def test_an_unknown_size_is_refused_with_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--size", "large"])

    assert "large is not a size such as 1280x720" in capsys.readouterr().err


def test_a_file_and_the_demo_cannot_both_be_asked_for(capsys):
    with pytest.raises(SystemExit):
        main(["x.gguf", "--demo"])

    assert "not allowed with" in capsys.readouterr().err


@pytest.fixture
def exceptions(qapp):
    before = sys.excepthook
    log = ExceptionLog()
    log.install()
    yield log
    log.remove()
    log.deleteLater()
    assert sys.excepthook is before


def caught_from(log):
    caught: list[tuple[str, str]] = []
    log.caught.connect(caught.append)
    return caught


def test_an_exception_becomes_one_line_and_a_traceback(exceptions):
    caught = caught_from(exceptions)
    try:
        int("seven")
    except ValueError:
        sys.excepthook(*sys.exc_info())

    [(line, details)] = caught
    assert line.startswith("ValueError: invalid literal")
    assert "test_main.py" in details


def test_an_exception_of_a_thread_is_told_too(exceptions, qtbot):
    caught = caught_from(exceptions)
    thread = threading.Thread(target=int, args=("x",))
    thread.start()
    thread.join()

    qtbot.waitUntil(lambda: bool(caught))
    assert caught[0][0].startswith("ValueError: invalid literal")


def test_the_log_is_a_file_in_the_cache():
    start_logging()

    assert (paths.cache_dir() / "splitscope.log").exists()


def test_the_help_names_what_can_be_done_without_a_screen(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])

    assert "--headless-demo [--out FOLDER]" in " ".join(capsys.readouterr().out.split())
