"""What is said of a file."""

import pytest

from engine.gguf.reader import open_gguf
from engine.report.models import model_summary
from tests.engine.nano import nano, nano_with


def summary_of(path):
    with open_gguf(path) as file:
        return model_summary(file)


def test_a_whole_model_has_its_numbers_and_no_problem():
    summary = summary_of(nano())

    assert (summary.name, summary.arch, summary.quantization) == ("nano-llama-f32", "llama", "f32")
    assert (summary.n_layers, summary.n_embd, summary.n_head, summary.n_head_kv) == (3, 64, 4, 2)
    assert (summary.n_vocab, summary.n_ctx_train) == (1024, 512)
    assert summary.weight_bytes == sum(tensor.n_bytes for tensor in summary.tensors)
    assert (summary.plan_problem, summary.run_problem, summary.text_faults) == ("", "", ())


@pytest.mark.parametrize(
    ("changes", "plan_problem", "run_problem"),
    [
        ({"whole": False}, "", "It can be planned, not run"),
        ({"general__architecture": "rwkv7"}, "", "no graph for rwkv7 models"),
        ({"general__architecture": None}, "does not say which architecture", ""),
        ({"llama__block_count": 4}, "no tensor blk.3.attn_norm.weight", ""),
    ],
    ids=str,
)
def test_problems_say_what_cannot_be_done(tmp_path, changes, plan_problem, run_problem):
    summary = summary_of(nano_with(tmp_path, **changes))

    assert plan_problem in summary.plan_problem
    assert run_problem in summary.run_problem
    assert bool(plan_problem) == bool(summary.plan_problem)


def test_faults_of_the_text_are_no_problem(tmp_path):
    changes = {"tokenizer__ggml__model": "unheard-of", "tokenizer__chat_template": "a\n{% if %}"}
    summary = summary_of(nano_with(tmp_path, **changes))

    tokenizer, template = summary.text_faults
    assert (summary.plan_problem, summary.run_problem) == ("", "")
    assert 'Its tokenizer is "unheard-of"' in tokenizer
    assert "Line 2, column 7: Expected an expression" in template
    assert template.endswith("The prompt is used as plain text instead.")


def test_a_file_that_says_nothing_of_itself_is_summed_up_too(tmp_path):
    summary = summary_of(
        nano_with(
            tmp_path, general__architecture=None, general__name=None, tokenizer__ggml__tokens=None
        )
    )

    assert (summary.arch, summary.name) == ("unknown", "nano-changed")
    assert (summary.n_layers, summary.n_vocab) == (0, 0)
    assert len(summary.tensors) == 30
