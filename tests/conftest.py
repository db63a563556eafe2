"""What every test stands on: folders of its own, an offscreen window, no thread left behind.

The user's real caches are used for two things only, since making them takes minutes: compiled
kernels (NUMBA_CACHE_DIR) and the demo model.
"""

import atexit
import itertools
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

from engine import paths
from engine.errors import FetchError

IN_CI = bool(os.environ.get("SPLITSCOPE_CI"))
ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"
THREAD_GRACE_S = 3.0


def configure_process() -> None:
    """Set what libraries read once, when they are loaded or first called."""
    paths.configure_environment()
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    # A crash can leave PoCL's cache corrupt, so every session starts with an empty one. pyopencl
    # keeps built programs as well: off, since a program from another session proves nothing.
    if "POCL_CACHE_DIR" not in os.environ:
        os.environ["POCL_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="splitscope-pocl-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")


configure_process()
# A kernel's first example compiles it: a deadline would measure that.
settings.register_profile("dev", max_examples=50, deadline=None)
# In CI the same examples every time, so that it tells what a change did; elsewhere new ones.
settings.register_profile("ci", max_examples=300, deadline=None, derandomize=True)
settings.load_profile("ci" if IN_CI else "dev")


@pytest.fixture(scope="session")
def folders_of_this_run(tmp_path_factory):
    """Number folders for `isolated_folders`: most tests never make theirs."""
    base = tmp_path_factory.mktemp("home")
    return (base / str(i) for i in itertools.count())


@pytest.fixture(autouse=True)
def isolated_folders(folders_of_this_run, monkeypatch):
    """Give the test and its child processes settings and caches that nobody else sees."""
    home = next(folders_of_this_run)
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    return home


@pytest.fixture(autouse=True)
def no_thread_survives():
    """Fail the test that leaves a thread running, by the thread's name."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_GRACE_S
    for thread in threading.enumerate():
        if thread not in before and not is_foreign(thread):
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [t for t in threading.enumerate() if t not in before and not is_foreign(t)]
    assert not left, f"threads left behind: {', '.join(t.name for t in left)}"


def is_foreign(thread: threading.Thread) -> bool:
    """Say whether a driver or Qt owns the thread and Python only met it."""
    return isinstance(thread, threading._DummyThread)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """Return the path of the real demo model, fetched where this machine does not have it."""
    # Lazy: the fetcher is not needed by a run that does not need the model.
    from engine.model.fetch import fetch_demo

    try:
        return fetch_demo()
    except FetchError as error:
        pytest.skip(f"the demo model cannot be fetched: {error}")


def pytest_collection_modifyitems(config, items):
    """Leave out what only the big golden set can show, and say so: a clone has no skips."""
    from tests.oracle import golden  # Later than the environment: it imports numpy.

    if golden.has_big_set():
        return
    left_out = [item for item in items if item.get_closest_marker("big_set")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("big_set")]


def pytest_report_header():
    """Say which golden data the run has."""
    from tests.oracle import golden

    if golden.has_big_set():
        return "golden data: the committed set and the big one"
    return f"golden data: the committed set; {golden.MISSING}: tests marked big_set are left out"


# In CI a skip is a failure unless tests/allowed_skips.txt lists its reason.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    refuse_unexpected_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    refuse_unexpected_skip(report)
    return report


def refuse_unexpected_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that nobody listed into a failure that names its reason."""
    if not IN_CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, "")
    if not skip_is_allowed(reason.removeprefix("Skipped: "), ALLOWED_SKIPS.read_text()):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nNo line of {ALLOWED_SKIPS.name} allows this skip in CI."


def skip_is_allowed(reason: str, allowed: str) -> bool:
    """Match the start of a reason with the list: one regular expression a line, # for comments."""
    lines = (line.strip() for line in allowed.splitlines())
    return any(re.match(line, reason) for line in lines if line and not line.startswith("#"))
