"""What `make bench` may be told."""

import pytest

from tests.bench import quick
from tests.bench.arguments import N_PAIRS, OUT, PARTS, parse
from tests.bench.models import MODELS
from tests.bench.report import MEASURES, chosen, main


def test_without_words_everything_is_measured():
    wish = parse([])

    assert wish.models == MODELS
    assert wish.threads == (1, 2)
    assert wish.n_pairs == N_PAIRS == 9
    assert wish.n_traced_pairs == 200
    assert wish.parts == PARTS
    assert wish.out == OUT


def test_a_part_can_be_chosen(tmp_path):
    wish = parse(
        ["--models", "qwen,demo", "--threads", "2", "--pairs", "3", "--only", "decode,prefill",
         "--out", str(tmp_path / "a b"), "--traced-pairs", "20"]
    )  # fmt: skip

    assert wish.models == ("demo", "qwen")
    assert wish.threads == (2,)
    assert wish.n_pairs == 3
    assert wish.n_traced_pairs == 20
    assert wish.parts == ("prefill", "decode")
    assert wish.out == tmp_path / "a b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "llama"], "there is no llama; there are demo, gemma, qwen, qwen-1.5b"),
        (["--only", "speed"], "there is no speed; there are prefill, decode,"),
        (["--threads", "two"], "two is no list of thread counts, such as 1,2"),
        (["--threads", "0"], "0 is no list of thread counts"),
        (["--threads", "1,1000000"], "1000000 threads are more than 256"),
        (["--pairs", "1"], "needs a number of pairs, 2 or more"),
        (["--pairs", "many"], "needs a number of pairs"),
    ],
)
def test_what_cannot_be_is_said(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(words)

    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_every_part_has_its_measure_and_prefill_and_decode_are_one():
    assert tuple(MEASURES) == PARTS
    names = [name for name, _ in chosen(PARTS)]
    assert names == [name for name in PARTS if name != "decode"]
    assert [name for name, _ in chosen(("decode", "ops"))] == ["decode", "ops"]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")

    assert main(["--out", str(file / "report")]) != 0
    assert f"Cannot write into {file / 'report'}: Not a directory." in capsys.readouterr().err


def test_the_quick_one_tells_what_it_is_and_takes_no_words(capsys):
    for words, status in ((["--help"], 0), (["--pairs", "3"], 2)):
        with pytest.raises(SystemExit) as stop:
            quick.main(words)
        assert stop.value.code == status

    assert "under a minute" in capsys.readouterr().out
