"""The rules that tests/conftest.py holds every test to, seen from outside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import threading, time
import pytest

def test_an_allowed_skip():
    pytest.skip("the big golden set is not here (SPLITSCOPE_ORACLE): models/x.gguf")

def test_another_skip():
    pytest.skip("not today")

@pytest.mark.skipif(True, reason="nor tomorrow")
def test_a_marked_skip():
    pass

def test_a_thread_stays():
    threading.Thread(target=time.sleep, args=(60,), name="left-over", daemon=True).start()

def test_a_thread_ends():
    threading.Thread(target=time.sleep, args=(0.01,)).start()

@pytest.mark.xfail(reason="known")
def test_an_expected_failure():
    raise AssertionError
"""


def run_pytest(folder: Path, **environment: str) -> str:
    (folder / "test_rules.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", str(folder)]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", "--import-mode=importlib", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.slow
def test_in_ci_only_listed_skips_pass_and_a_thread_left_behind_always_fails(tmp_path):
    output = run_pytest(tmp_path, SPLITSCOPE_CI="1")

    assert "threads left behind: left-over" in output
    assert "No line of allowed_skips.txt allows this skip in CI" in output
    assert "1 failed, 2 passed, 1 skipped, 1 xfailed, 2 errors" in output
