"""Folders of the program and of the user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import paths

ROOT = Path(__file__).parents[2]


def test_resources_of_a_checkout_lie_beside_the_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(sys, "_MEIPASS", raising=False)

    assert paths.resources_dir() == ROOT / "resources"
    assert (paths.resources_dir() / "models.json").is_file()


def test_resources_of_a_bundle_lie_where_it_was_unpacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)

    assert paths.resources_dir() == tmp_path / "resources"


def test_folders_of_the_user_carry_the_programs_name_and_are_not_made():
    for folder in (paths.cache_dir(), paths.settings_dir()):
        assert folder.is_absolute()
        assert "splitscope" in str(folder)
    assert paths.models_dir().parent == paths.cache_dir()


def test_the_named_golden_folder_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SPLITSCOPE_ORACLE", str(tmp_path))

    assert paths.oracle_dir() == tmp_path


def test_a_named_golden_folder_that_is_absent_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SPLITSCOPE_ORACLE", str(tmp_path / "gone"))

    assert paths.oracle_dir() is None


def test_golden_data_is_found_in_the_checkout_before_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("SPLITSCOPE_ORACLE", raising=False)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "checkout" / "engine" / "paths.py"))
    inside = tmp_path / "checkout" / "shared" / "oracle"
    beside = tmp_path / "shared" / "oracle"

    assert paths.oracle_dir() is None
    beside.mkdir(parents=True)
    assert paths.oracle_dir() == beside
    inside.mkdir(parents=True)
    assert paths.oracle_dir() == inside


def test_the_environment_keeps_what_a_person_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "mine")
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "9")

    paths.configure_environment()

    assert os.environ["NUMBA_CACHE_DIR"] == "mine"
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "9"


def test_the_environment_is_set_before_numpy_and_numba_are_loaded():
    script = """
import os, sys
from engine import paths
paths.configure_environment()
assert not {"numpy", "numba"} & set(sys.modules), "loaded too early"
print(os.environ["NUMBA_CACHE_DIR"], os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""
    names = ("NUMBA_CACHE_DIR", "OPENBLAS_THREAD_TIMEOUT")
    environment = {name: value for name, value in os.environ.items() if name not in names}

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.split() == [str(paths.cache_dir() / "numba"), "4"]
