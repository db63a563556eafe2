"""A model whose tokenizer and chat template are broken runs, and says what was used instead."""

import pytest

from engine.cli.main import main
from engine.core.options import Options
from engine.session import Session
from tests.engine.nano import nano_with

CPU = Options(n_gpu_layers=0, n_ctx=256)


@pytest.fixture
def faulty_model(tmp_path):
    """Give a whole tiny model with a tokenizer nobody knows and a template that fails."""
    changes = {"tokenizer__ggml__model": "unheard-of", "tokenizer__chat_template": "{{ x.y }}"}
    return nano_with(tmp_path, **changes)


def test_a_faulty_tokenizer_keeps_no_model_from_running(faulty_model):
    session = Session()
    opened = session.open(faulty_model)
    session.plan(CPU)
    summary = session.run("Hello", 2, chat=True)
    marks = [mark.text for mark in session.snapshot().marks]
    session.close()

    assert summary.notes == opened.text_faults
    assert len(summary.tokens) == 2
    assert "Line 1, column 4: 'x' is undefined" in summary.notes[1]
    assert set(summary.notes) <= set(marks)


def test_the_command_line_tells_of_it_beside_the_result(faulty_model, capsys):
    words = ["run", str(faulty_model), "-p", "Hello", "-n", "1", "-ngl", "0", "-c", "256", "--chat"]

    assert main(words) == 0
    said = capsys.readouterr().err
    assert "The longest listed token at each place is used instead" in said
    assert "The prompt is used as plain text instead." in said
