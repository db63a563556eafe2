"""A driver is tried in a process of its own before it is let into the engine's."""

import sys
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from engine.backends.opencl import selfcheck, trial
from engine.backends.opencl.discovery import Verdict
from engine.backends.opencl.platforms import find_devices
from engine.errors import DeviceError

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

    assert first == Verdict()
    assert trial.check_apart(found, 0) == Verdict()


def test_a_driver_that_ends_its_process_is_a_reason_with_its_own_words(
    found, tmp_path, monkeypatch
):
    executable_that(tmp_path, monkeypatch, "echo 'no linker here' >&2", "kill -6 $$")

    problem = trial.check_apart(found, 0).problem

    assert problem.startswith("its driver ended the process that tried a small kernel: SIGABRT")
    assert problem.endswith("; it said: no linker here")


def test_a_failed_trial_is_not_remembered(found, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        executable_that(tmp_path, broken, "exit 1")
        assert trial.check_apart(found, 0).problem

    assert trial.check_apart(found, 0) == Verdict()


@pytest.mark.parametrize("text", ["{not json", '["a list of an older version"]', "3"])
def test_a_note_of_verdicts_that_cannot_be_read_is_no_error(found, tmp_path, text):
    note = tmp_path / "compiled" / "opencl-checked.json"
    note.parent.mkdir()
    note.write_text(text)

    assert trial.check_apart(found, 0) == Verdict()


def test_a_driver_that_ends_on_a_mapped_file_is_used_without_and_not_tried_again(
    found, tmp_path, monkeypatch
):
    with monkeypatch.context() as partly:
        lines = ('[ "$4" = "a mapped file" ] || exit 0', "echo 'bad address' >&2", "kill -11 $$")
        executable_that(tmp_path, partly, *lines)
        first = trial.check_apart(replace(found, shares_memory=True), 0)

    assert first == Verdict(
        no_mapping=(
            "its driver ended the process that tried a mapped file: SIGSEGV; it said: bad address"
        )
    )
    assert trial.check_apart(found, 0) == first


def test_a_card_with_memory_of_its_own_is_not_tried_with_a_mapped_file(
    found, tmp_path, monkeypatch
):
    executable_that(tmp_path, monkeypatch, '[ "$4" != "a mapped file" ]')

    assert trial.check_apart(replace(found, shares_memory=False), 0) == Verdict()


def test_what_the_check_reads_of_the_mapped_file_is_compared(found, monkeypatch):
    wrong = np.zeros(selfcheck.N_SUMS, np.uint32)
    right = selfcheck.check_mapping(found)
    monkeypatch.setattr(selfcheck, "_sums", lambda device, mapped: wrong)

    assert right == ""
    assert selfcheck.check_mapping(found) == "it read a mapped file wrong"


def test_a_trial_with_a_mapped_file_that_took_too_long_is_done_again(found, tmp_path, monkeypatch):
    shared = replace(found, shares_memory=True)
    with monkeypatch.context() as slow:
        slow.setattr(trial, "LIMIT_S", 0.5)
        executable_that(tmp_path, slow, '[ "$4" = "a mapped file" ] || exit 0', "exec sleep 60")
        first = trial.check_apart(shared, 0)
    executable_that(tmp_path, monkeypatch, "exit 0")

    assert first == Verdict(no_mapping="its driver did not finish a mapped file within 0.5 s")
    assert trial.check_apart(shared, 0) == Verdict()


def test_a_trial_with_a_mapped_file_that_could_not_start_is_done_again(
    found, tmp_path, monkeypatch
):
    shared = replace(found, shares_memory=True)
    with monkeypatch.context() as gone:
        executable_that(tmp_path, gone, '[ "$4" = "a mapped file" ] || exec rm "$0"')
        first = trial.check_apart(shared, 0)
    executable_that(tmp_path, monkeypatch, "exit 0")

    assert "its check could not be started" in first.no_mapping
    assert trial.check_apart(shared, 0) == Verdict()


def test_a_bundle_says_that_it_cannot_try_a_driver(found, monkeypatch):
    monkeypatch.setattr(sys, "_MEIPASS", "/unpacked", raising=False)

    problem = trial.check_apart(found, 0).problem

    assert problem.startswith("its check could not be started: a bundle of Splitscope cannot")


def test_a_driver_that_refuses_a_mapped_file_is_told_in_its_words(found, monkeypatch):
    def refusing(device, mapped):
        raise cl.LogicError("no mapped files here")

    monkeypatch.setattr(selfcheck, "_sums", refusing)

    reason = selfcheck.check_mapping(found)

    assert reason == "its driver refused a mapped file: no mapped files here"


def test_a_compiler_that_refuses_the_trial_of_a_mapped_file_is_told_in_its_words(
    found, monkeypatch
):
    def refusing(device, mapped):
        raise DeviceError("It cannot be compiled.", details="no uchar here")

    monkeypatch.setattr(selfcheck, "_sums", refusing)

    reason = selfcheck.check_mapping(found)

    assert reason == "its compiler refused to read a mapped file: no uchar here"


def test_where_drivers_cannot_keep_code_that_is_said_beside_what_they_say(found, monkeypatch):
    def refusing(device):
        raise DeviceError("It cannot be compiled.", details="no kernel here")

    monkeypatch.setattr(selfcheck, "_run", refusing)
    assert selfcheck.check_device(found) == "its compiler refused a small kernel: no kernel here"

    monkeypatch.setenv("POCL_CACHE_DIR", "/proc/none")

    assert selfcheck.check_device(found) == (
        "its compiler refused a small kernel: no kernel here; /proc, where drivers keep code, "
        "cannot be written: No such file or directory"
    )
