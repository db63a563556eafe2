"""embed: what it prints, and what it refuses."""

import json

import numpy as np
import pytest

from engine.cli.embed import print_rows
from engine.core.summary import Embedded, RunSummary, StopReason
from engine.report.embeddings import embedded_data
from tests.engine.encoder import broken, encoder
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


CPU = ("--devices", "cpu")


def test_what_was_measured_stands_beside_the_rows(cli, tmp_path):
    done = cli("embed", encoder(tmp_path), "hello world", *CPU)

    assert done.code == 0
    assert done.out.splitlines()[0].startswith("4 tokens, 256 numbers a row")
    text, sums = done.err.splitlines()
    assert text.startswith("text 4 tokens in ")
    assert text.endswith(" tokens/s")
    assert sums == "text: 1 split, 0 copies, 0.00 MiB a graph"


def test_programs_are_given_times_splits_and_copies_too(cli, tmp_path):
    data = cli("embed", encoder(tmp_path), "hello world", *CPU, "--json").json

    assert len(data["tokens"]) == 4
    assert data["prefill_ns"] > 0
    assert [split["backend"] for split in data["splits"]] == ["CPU"]
    assert data["copies"] == []


def test_files_are_named_where_they_were_written(cli, tmp_path):
    rows, trace = tmp_path / "rows.npy", tmp_path / "t.json"

    done = cli("embed", encoder(tmp_path), "hello", *CPU, "-o", rows, "--trace", trace)

    assert done.out.splitlines()[-2:] == [f"Rows in {rows}", f"Trace in {trace}"]
    assert np.load(rows).shape == (1, 256)
    assert "traceEvents" in json.loads(trace.read_text())


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_what_of_the_tokenizer_was_not_as_the_file_says_is_told(cli, tmp_path, extra):
    done = cli("embed", encoder(tmp_path, tokenizer__ggml__model="bogus"), "hello", *CPU, *extra)

    assert 'Its tokenizer is "bogus"' in done.err
    if extra:
        (note,) = done.json["notes"]
        assert note in done.err


def test_an_embedding_that_is_no_number_is_refused(cli, tmp_path):
    done = cli("embed", broken(tmp_path), "hello", *CPU, "-o", tmp_path / "rows.npy")

    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("The model produced NaN in 1 of 256 values of the embedding.")
    assert not (tmp_path / "rows.npy").exists()


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_blank_text_is_refused_as_one(cli, tmp_path, text):
    done = cli("embed", encoder(tmp_path), text, *CPU)

    assert (done.code, done.err) == (1, "The text is empty.\nType a text to embed.\n")


def test_the_help_names_the_poolings_and_no_option_without_a_meaning(cli, capsys):
    with pytest.raises(SystemExit):
        cli("embed", "--help")

    words = " ".join(capsys.readouterr().out.split())
    assert "none, mean, cls or last" in words
    assert not any(option in words for option in ("--batch ", "--temp", "--top-k", "--seed"))


def test_options_of_other_commands_are_taken_all_the_same(cli, tmp_path):
    assert cli("embed", encoder(tmp_path), "hello", *CPU, "--temp", 0, "--batch", "token").code == 0


def test_an_unknown_pooling_is_named_with_those_that_are_known(cli):
    refused = cli("embed", nano(), "a", "--pooling", "sum")

    assert refused.code == 1
    assert "model, none, mean, cls, last" in refused.err
