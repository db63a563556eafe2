"""Backends of others that fail while they are used: words, not our own traceback."""

from pathlib import Path

import pytest

from engine.cli.main import main

TEMPLATE = Path("resources/templates/splitscope_backend_slow.py")


def broken(folder: Path, old: str, new: str) -> Path:
    """The template with one thing changed."""
    text = TEMPLATE.read_text(encoding="utf-8")
    assert old in text
    path = folder / "splitscope_backend_slow.py"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def run_with(path: Path, model: Path) -> int:
    words = ["-p", "Hello", "-n", "1", "-ngl", "2", "--load", str(path), "--devices", "Slow"]
    return main(["run", str(model), *words])


COMPUTE = "    def graph_compute(self, graph: SplitGraph) -> Event:\n"


@pytest.mark.demo
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            COMPUTE,
            f"{COMPUTE}        raise OSError('gone')\n",
            "The backend of splitscope_backend_slow.py raised OSError('gone').",
        ),
        (
            COMPUTE,
            f"{COMPUTE}        return None\n",
            "Its graph_compute gave None, which is no Event.",
        ),
        (
            "    def init_backend(self)",
            "    def init_backend(self):\n        raise RuntimeError('gone')\n    def o(self)",
            "raised RuntimeError('gone').",
        ),
    ],
)
def test_a_backend_that_fails_during_a_run_is_named(tmp_path, demo_model, capsys, old, new, words):
    path = broken(tmp_path, old, new)

    code = run_with(path, demo_model)

    said = capsys.readouterr().err
    assert code == 1
    assert words in said
    assert "Traceback" not in said


def test_what_a_backend_prints_is_not_among_what_was_asked_for(tmp_path, capsys):
    path = broken(tmp_path, "\ndef backend_init()", "\nprint('spam')\n\n\ndef backend_init()")

    code = main(["devices", "--json", "--load", str(path)])

    printed = capsys.readouterr()
    assert code == 0
    assert "spam" not in printed.out
    assert "spam" in printed.err


def test_a_path_that_gives_nothing_is_told_why(tmp_path, capsys):
    code = main(["devices", "--load", str(tmp_path / "nothing")])

    assert code == 1
    assert "There is no such file or folder." in capsys.readouterr().err
