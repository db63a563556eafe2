"""Ctrl-C while a program is imported."""

import signal
import subprocess
import sys
import textwrap

import pytest

from engine import paths
from engine.starting import ending_quietly

# A signal that comes while Python clears something up is printed and forgotten, unless the
# handler ends the process; the import system has such places.
INTERRUPTED = """
    import os, runpy, signal, sys

    class Cleared:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == {module!r}:
                Cleared()

    sys.meta_path.insert(0, Finder)
    sys.argv = ["program", "--help"]
    runpy.run_module({program!r}, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(("program", "module"), [("engine", "numpy"), ("app", "app.main")])
def test_ctrl_c_while_a_program_is_imported_ends_it_without_a_traceback(program, module):
    script = textwrap.dedent(INTERRUPTED.format(program=program, module=module))

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=paths.repository_dir(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Stopped.\n")


def test_afterwards_ctrl_c_means_what_it_meant_before():
    before = signal.getsignal(signal.SIGINT)

    with ending_quietly():
        assert signal.getsignal(signal.SIGINT) is not before

    assert signal.getsignal(signal.SIGINT) is before


def test_who_does_not_listen_to_ctrl_c_goes_on_not_listening():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ending_quietly():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
