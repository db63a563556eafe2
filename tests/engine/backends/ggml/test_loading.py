"""The loader on the libraries of a llama.cpp install, sound ones and copies that are not."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import paths
from engine.backends.ggml.kind import GgmlKind
from tests.engine.backends.ggml.libraries import BASE, ggml_folder

PLAIN = "libggml-cpu-x64.so"
"""The variant that runs on every processor of this kind."""


@pytest.fixture(scope="module")
def libraries() -> Path:
    return ggml_folder()


def attempts(*words: object) -> list[dict[str, Any]]:
    """Return what was found; in a process of its own, since libraries stay where they were opened.

    The built-in CPU is always there afterwards.
    """
    command = [sys.executable, "-m", "engine", "devices", "--backends", "cpu", "--json"]
    done = subprocess.run(
        [*command, *map(str, words)], cwd=paths.repository_dir(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["devices"][-1]["name"] == "CPU"
    assert done.returncode == (0 if "registered" in done.stdout else 1), done.stderr
    return [a for a in found["load_report"]["attempts"] if a["found"]]


def test_of_many_variants_the_one_wins_that_scores_highest_by_its_own_count(libraries):
    kind = GgmlKind()
    scores = {path.name: kind.probe(path).score for path in libraries.glob("libggml-cpu-*.so")}

    rows = {Path(a["path"]).name: a for a in attempts("--load", libraries)}

    (winner,) = (name for name, row in rows.items() if row["outcome"] == "registered")
    assert scores[winner] == max(scores.values()) > 0
    assert {name: row["score"] for name, row in rows.items()} == scores
    for name, row in rows.items():
        if name != winner:
            assert row["outcome"] == ("not chosen" if scores[name] else "refused")


def base_alone(folder: Path, libraries: Path) -> None:
    """Write a library without the symbols of a backend."""
    shutil.copy(libraries / BASE, folder / "libggml-cpu.so")


def cut(folder: Path, libraries: Path) -> None:
    data = (libraries / PLAIN).read_bytes()
    (folder / "libggml-cpu.so").write_bytes(data[: len(data) // 8])


def text(folder: Path, libraries: Path) -> None:
    (folder / "libggml-cpu.so").write_text("This is no library, whatever it is called. " * 99)


def a_folder(folder: Path, libraries: Path) -> None:
    (folder / "libggml-cpu.so").mkdir()


def no_base(folder: Path, libraries: Path) -> None:
    shutil.copy(libraries / PLAIN, folder)
    (folder / BASE).unlink()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (base_alone, "it has no ggml_backend_init"),
        (cut, "it cannot be opened: "),
        (text, "invalid ELF header"),
        (a_folder, "it is a folder"),
        (no_base, f"{BASE}: cannot open shared object file"),
    ],
)
def test_a_library_that_cannot_be_used_is_a_row_with_the_loaders_own_words(
    libraries, tmp_path, make, words
):
    shutil.copy(libraries / BASE, tmp_path)
    make(tmp_path, libraries)

    (row,) = attempts("--load", tmp_path)

    assert row["outcome"] == "refused"
    assert words in row["reason"]


def test_the_base_file_is_taken_where_there_are_no_variants(libraries, tmp_path):
    shutil.copy(libraries / BASE, tmp_path)
    shutil.copy(libraries / PLAIN, tmp_path / "libggml-cpu.so")

    (row,) = attempts("--load", tmp_path)

    assert (row["outcome"], row["backend"], row["variant"]) == ("registered", "cpu", "")
    assert (row["symbol"], row["api_version"]) == ("ggml_backend_init", 2)
