"""A driver is tried in a process of its own before it is let into the engine's."""

import sys

import pytest

from engine.backends.opencl import trial
from engine.backends.opencl.platforms import find_devices

pytestmark = pytest.mark.gpu


@pytest.fixture
def found(device, tmp_path, monkeypatch):
    """The first real device, and no verdict remembered from before."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    return find_devices()[0][0]


def executable_that(tmp_path, monkeypatch, *lines):
    script = tmp_path / "driver.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_sound_device_passes_and_is_not_tried_again(found, tmp_path, monkeypatch):
    first = trial.check_apart(found, 0)
    executable_that(tmp_path, monkeypatch, "exit 3")

    assert first == ""
    assert trial.check_apart(found, 0) == ""


def test_a_driver_that_ends_its_process_is_a_reason_with_its_own_words(
    found, tmp_path, monkeypatch
):
    executable_that(tmp_path, monkeypatch, "echo 'no linker here' >&2", "kill -6 $$")

    reason = trial.check_apart(found, 0)

    assert reason == "its driver ended the process that tried a small kernel: no linker here"


def test_a_failed_trial_is_not_remembered(found, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        executable_that(tmp_path, broken, "exit 1")
        assert trial.check_apart(found, 0)

    assert trial.check_apart(found, 0) == ""


def test_a_damaged_note_of_verdicts_is_no_error(found, tmp_path):
    note = tmp_path / "compiled" / "opencl-checked.json"
    note.parent.mkdir()
    note.write_text("{not json")

    assert trial.check_apart(found, 0) == ""
