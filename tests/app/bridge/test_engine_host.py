"""A real child process: start, hear, send, end, and every way in which it can end by itself."""

import queue
import stat
import sys
import time
from pathlib import Path

import pytest

from app.bridge.engine_host import EngineHost, engine_command
from engine.service.messages import EngineDied, EngineReady, ExportTrace, Failed, OpenModel

CHILD = Path(__file__).parent / "child.py"


@pytest.fixture
def start():
    """Return a function that starts a child in a mode; gives its host and its answers."""
    hosts = []

    def starter(mode: str = "good"):
        host = EngineHost([sys.executable, str(CHILD), mode])
        hosts.append(host)
        answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        host.start(answers.put)
        return host, answers

    yield starter
    for host in hosts:
        host.close()


def hear(answers):
    return answers.get(timeout=30)


def test_the_engine_is_this_python():
    assert engine_command() == [sys.executable, "-P", "-m", "engine", "serve"]


def test_what_lies_in_the_current_folder_stands_in_for_no_module(tmp_path, monkeypatch):
    (tmp_path / "engine.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    host = EngineHost()
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()

    host.start(answers.put)
    try:
        assert isinstance(hear(answers), EngineReady)
    finally:
        host.close()


def test_a_bundle_starts_itself(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    assert engine_command() == [sys.executable, "--engine-serve"]


def test_answers_come_back(start):
    host, answers = start()
    assert isinstance(hear(answers), EngineReady)

    host.send(OpenModel(4, "x.gguf"))

    assert hear(answers) == Failed(4, "Cannot open x.gguf")
    assert host.is_running


def test_closing_ends_the_process_and_says_nothing(start):
    host, answers = start()
    hear(answers)

    host.close()

    assert not host.is_running
    assert answers.empty()


def test_a_process_that_does_not_end_is_ended(start):
    host, answers = start("ignores shutdown")
    hear(answers)
    began = time.monotonic()

    host.close(timeout_s=0.3)

    assert not host.is_running
    assert time.monotonic() - began < 30
    assert answers.empty()


def test_a_death_is_reported_with_exit_code_and_last_output(start):
    host, answers = start()
    hear(answers)

    host.send(ExportTrace(1, Path("x")))

    died = hear(answers)
    assert isinstance(died, EngineDied)
    assert died.exit_code == 3
    assert "segfault in the driver" in died.details


def test_a_process_that_never_connects_is_reported_too(start):
    _, answers = start("never connects")

    died = hear(answers)

    assert isinstance(died, EngineDied)
    assert died.exit_code == 7
    assert "no driver found" in died.details


def test_a_process_without_the_key_is_not_heard(start):
    _, answers = start("wrong key")

    assert isinstance(hear(answers), EngineDied)


def test_a_host_can_start_again_after_a_death(start):
    host, answers = start()
    hear(answers)
    host.send(ExportTrace(1, Path("x")))
    hear(answers)

    host.start(answers.put)

    assert isinstance(hear(answers), EngineReady)


def test_sending_to_no_process_is_dropped():
    EngineHost([sys.executable]).send(OpenModel(1, "x"))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes have no folder there")
def test_the_socket_lies_in_a_folder_only_this_user_enters(start):
    host, answers = start()
    hear(answers)
    folder = host._child._folder

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    host.close()
    assert not folder.exists()
