"""Processes of their own: how they are started, and how their end is told."""

import sys

import pytest

from engine.backend.apart import child_command, end_of, last_words, probe_apart, way_to_end


def test_a_checkout_runs_a_module_with_its_own_python():
    assert child_command("engine.some", "a", "b") == [sys.executable, "-m", "engine.some", "a", "b"]


def test_a_bundle_starts_nothing_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    monkeypatch.setattr(sys, "executable", "/nowhere/splitscope")

    with pytest.raises(OSError, match="a bundle of Splitscope cannot start one"):
        child_command("engine.some")
    probe = probe_apart("engine.some", tmp_path / "x.py")

    assert not probe.opened
    assert "a bundle of Splitscope cannot start one" in probe.error


@pytest.mark.parametrize(("code", "words"), [(3, "status 3"), (-6, "SIGABRT"), (-99, "signal 99")])
def test_the_end_of_a_process_is_told_in_a_word(code, words):
    assert way_to_end(code) == words


def test_what_it_said_follows_on_one_line():
    assert end_of(-6, "one\n  two\n") == "SIGABRT; it said: one two"
    assert end_of(1, " \n") == "status 1"


def test_only_what_was_written_last_is_kept():
    assert last_words("first\nsecond\nlast\n", 11) == "second\nlast"
