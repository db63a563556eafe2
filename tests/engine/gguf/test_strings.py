"""StringArray: a list that decodes late."""

import pickle

import numpy as np

from engine.gguf.strings import StringArray

WORDS = ["a", "", "żółw", "a b"]


def test_it_reads_like_a_list():
    strings = StringArray.of(WORDS)

    assert len(strings) == 4
    assert list(strings) == [strings[i] for i in range(4)] == WORDS
    assert strings[-1] == "a b"
    assert strings.index("żółw") == 2
    assert "b" not in strings
    assert list(strings[1:3]) == WORDS[1:3]
    assert repr(strings) == "<StringArray of 4 strings>"


def test_bytes_that_are_not_utf8_are_replaced_but_kept_in_raw():
    strings = StringArray.of([b"\xff\xfe", "é"])

    assert list(strings) == ["\ufffd\ufffd", "é"]
    assert strings[0] == "\ufffd\ufffd"
    assert strings.raw(0) == b"\xff\xfe"


def test_it_survives_pickling():
    assert list(pickle.loads(pickle.dumps(StringArray.of(WORDS)))) == WORDS


def test_an_empty_one_has_no_items():
    strings = StringArray.of([])

    assert list(strings) == []
    assert strings.starts.dtype == np.int64
