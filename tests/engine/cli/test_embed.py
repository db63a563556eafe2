"""embed: what it prints, and what it refuses."""

import json

import numpy as np
import pytest

from engine.cli.embed import print_rows
from engine.core.summary import Embedded, RunSummary, StopReason
from engine.report.embeddings import embedded_data
from tests.engine.nano import nano


def embedded(n_rows, n_embd, pooling):
    rows = np.arange(n_rows * n_embd, dtype=np.float32).reshape(n_rows, n_embd)
    summary = RunSummary(
        prompt="", prompt_tokens=tuple(range(5)), tokens=(), text="",
        stop_reason=StopReason.LENGTH, prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0,
        prefill_ns=0, decode_step_ns=(), prompt_plan_id=0, token_plan_id=-1, splits=(), copies=(),
    )  # fmt: skip
    return Embedded(pooling, rows, summary)


def test_a_pooled_row_has_no_number_and_shows_both_ends(capsys):
    print_rows(embedded(1, 8, "mean"))

    head, row = capsys.readouterr().out.splitlines()
    assert head == "5 tokens, 8 numbers a row, one row, pooling mean."
    assert row.split() == [
        "0.000000", "1.000000", "2.000000", "..", "5.000000", "6.000000", "7.000000",
        "length", "11.8322",
    ]  # fmt: skip


def test_without_pooling_each_token_has_a_numbered_row(capsys):
    print_rows(embedded(5, 4, "none"))

    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "5 tokens, 4 numbers a row, a row a token."
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4"]


def test_programs_are_given_every_number():
    data = json.loads(json.dumps(embedded_data(embedded(2, 8, "none"))))

    assert (data["pooling"], data["n_embd"], data["tokens"]) == ("none", 8, [0, 1, 2, 3, 4])
    assert data["embeddings"][1] == [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


@pytest.mark.parametrize("words", [["embed", nano(), "a text"], ["embed", nano(), "a", "--json"]])
def test_a_model_that_writes_text_is_refused(cli, words):
    refused = cli(*words)

    assert refused.code == 1
    assert "This model gives no embeddings. It writes text." in refused.err


def test_an_unknown_pooling_is_named_with_those_that_are_known(cli):
    refused = cli("embed", nano(), "a", "--pooling", "sum")

    assert refused.code == 1
    assert "model, none, mean, cls, last" in refused.err
