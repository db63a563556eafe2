"""Tables and JSON."""

import json

import numpy as np
import pytest

from engine.cli.output import plain, print_json, print_table
from engine.core.plan import Batch
from engine.core.summary import ScoreStep


def test_columns_of_numbers_are_right_aligned(capsys):
    print_table(("name", "MiB"), [("a", "1,024.50"), ("bcdef", "\u2013")])

    assert capsys.readouterr().out.splitlines() == [
        "name        MiB", "a      1,024.50", "bcdef         \u2013",
    ]  # fmt: skip


def test_a_table_without_rows_is_its_heads(capsys):
    print_table(("a", "b"), [])

    assert capsys.readouterr().out == "a  b\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ScoreStep(1, 2, 0.5), {"token": 1, "argmax": 2, "gap": 0.5}),
        ({Batch.TOKEN: (np.int64(3), None)}, {"token": [3, None]}),
        ([float("nan"), np.float32("inf"), 1.5], [None, None, 1.5]),
        (Batch.PROMPT, "prompt"),
    ],
    ids=["dataclass", "mapping", "numbers without a word", "enum"],
)
def test_values_become_what_json_has_words_for(value, expected):
    assert plain(value) == expected


def test_json_can_be_printed_anywhere(capsys):
    print_json({"text": "é \udcff"})

    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"text": "é \udcff"}
