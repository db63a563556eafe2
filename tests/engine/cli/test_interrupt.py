"""Ctrl-C: once asks to stop, twice ends."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from engine.cli.interrupt import stoppable
from engine.cli.main import main
from engine.model.context import ModelContext
from tests.engine.nano import nano

ROOT = Path(__file__).parents[3]


def test_the_first_ctrl_c_asks_to_stop_and_the_outcome_comes_back():
    asked = threading.Event()

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        return asked.wait(60)

    before = signal.getsignal(signal.SIGINT)

    assert stoppable(work, asked.set) is True
    assert signal.getsignal(signal.SIGINT) is before


def test_what_the_work_raises_is_raised():
    def work():
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        stoppable(work, lambda: None)


STUBBORN = """
    import time
    from engine.cli.interrupt import stoppable

    def work():
        print("working", flush=True)
        time.sleep(600)

    stoppable(work, lambda: print("asked", flush=True))
"""


def test_the_second_ctrl_c_ends_the_process():
    command = [sys.executable, "-c", textwrap.dedent(STUBBORN)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        process.wait(60)

    assert process.returncode == -signal.SIGINT


# A context this long keeps even the nano model busy for many seconds.
LONG = ["-p", "Hello", "-n", "60000", "-c", "65536", "--temp", "0", "--devices", "cpu"]


def test_a_run_for_programs_that_is_stopped_is_summed_up_too(monkeypatch, capsys):
    def interrupt(context, *args):
        logits = decode(context, *args)
        if not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))
        return logits

    asked, decode = [], ModelContext.decode
    monkeypatch.setattr(ModelContext, "decode", interrupt)

    assert main(["run", nano(), *LONG, "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["stop_reason"] == "stopped"


def test_a_run_that_is_stopped_prints_what_there_is():
    command = [sys.executable, "-m", "engine", "run", nano(), *LONG]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.read(20).startswith(b"Hello")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert b"ended: stopped" in out
    assert (process.returncode, err) == (130, b"")
