import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.text.bpe import ALPHABET, bytes_to_chars, chars_to_bytes
from engine.text.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
"""By pre-tokenizer: real vocabularies cut to what their cases reach, with ids of real llama.cpp."""

A, B, C = (2 + ALPHABET.index(char) for char in "abc")
AB, BC, ABC = 258, 259, 260


@pytest.fixture
def tiny():
    """Give metadata of a byte-level vocabulary: 0 ends, 1 is a mark, bytes from 2, three merges."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["<|im_end|>", "<mark>", *ALPHABET, "ab", "bc", "abc"],
        "tokenizer.ggml.token_type": [3, 4] + [1] * 259,
        "tokenizer.ggml.merges": ["a b", "b c", "ab c"],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 0,
    }


def encode(metadata, text, *, add_special=False, parse_special=True):
    tokenizer = Tokenizer.from_metadata(metadata)
    return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_are_those_of_llama_cpp(name):
    golden = GOLDEN[name]
    tokenizer = Tokenizer.from_metadata(golden["metadata"])

    for text, expected in golden["cases"]:
        ids = tokenizer.encode(text, add_special=golden["add_special"], parse_special=True)

        assert ids == expected, text


def test_merges_follow_their_rank_not_their_place(tiny):
    tiny["tokenizer.ggml.merges"] = ["b c", "a b"]

    assert encode(tiny, "abc") == [A, BC]


def test_merges_join_what_earlier_merges_made(tiny):
    assert encode(tiny, "abcab") == [ABC, AB]


def test_equal_merges_join_from_the_left(tiny):
    tiny["tokenizer.ggml.tokens"][-1] = "aa"
    tiny["tokenizer.ggml.merges"] = ["a a"]

    assert encode(tiny, "aaa") == [ABC, A]


def test_a_long_word_is_merged_as_a_short_one(tiny):
    assert encode(tiny, "abc" * 20_000) == [ABC] * 20_000


def test_a_control_token_is_text_unless_it_is_asked_for(tiny):
    text = "ab<|im_end|>"

    assert encode(tiny, text) == [AB, 0]
    assert 0 not in encode(tiny, text, parse_special=False)


def test_a_user_defined_token_is_always_cut_out(tiny):
    assert encode(tiny, "ab<mark>c", parse_special=False) == [AB, 1, C]


def test_the_longer_of_two_special_tokens_wins(tiny):
    tiny["tokenizer.ggml.tokens"][2] = "<mark><mark>"
    tiny["tokenizer.ggml.token_type"][2] = 4

    assert encode(tiny, "<mark><mark><mark>") == [2, 1]


def test_special_tokens_are_added_where_the_file_says(tiny):
    tiny |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}

    assert encode(tiny, "ab", add_special=True) == [0, AB, 0]
    assert encode(tiny, "ab", add_special=False) == [AB]


def test_a_byte_without_a_token_is_left_out(tiny):
    tiny["tokenizer.ggml.tokens"][2 + 4] = "unused"

    assert encode(tiny, "a\x04b") == [A, B]


def test_lone_surrogates_become_the_replacement_character(tiny):
    tokenizer = Tokenizer.from_metadata(tiny)

    ids = tokenizer.encode("a\ud800", add_special=False, parse_special=False)

    assert tokenizer.decode(ids) == "a\ufffd"


def test_end_tokens_come_from_ids_and_from_texts(tiny):
    tiny["tokenizer.ggml.tokens"][2:5] = ["<|eot_id|>", "<reponame>", "<repo_name>"]
    tiny["tokenizer.ggml.eos_token_id"] = 1

    tokenizer = Tokenizer.from_metadata(tiny)

    assert tokenizer.end_ids == {0, 1, 2, 3}
    assert tokenizer.is_end(0)
    assert not tokenizer.is_end(4)


def test_a_token_that_looks_like_control_is_made_one(tiny):
    tiny["tokenizer.ggml.tokens"][2] = "<|eot_id|>"

    tokenizer = Tokenizer.from_metadata(tiny)

    assert tokenizer.encode("<|eot_id|>", add_special=False, parse_special=True) == [2]


def test_end_of_message_does_not_end_a_harmony_turn(tiny):
    tiny["tokenizer.ggml.tokens"][2:5] = ["<|return|>", "<|call|>", "<|end|>"]

    assert Tokenizer.from_metadata(tiny).end_ids == {0, 2, 3}


def test_ids_beyond_the_vocabulary_count_as_not_stated(tiny):
    tiny["tokenizer.ggml.eos_token_id"] = 999
    tiny["tokenizer.ggml.bos_token_id"] = 999

    tokenizer = Tokenizer.from_metadata(tiny)

    assert tokenizer.eos_id == 11
    assert tokenizer.bos_id == 11


def test_token_types_may_be_a_numpy_array(tiny):
    tiny["tokenizer.ggml.token_type"] = np.array(tiny["tokenizer.ggml.token_type"], np.int32)

    assert encode(tiny, "ab<mark>") == [AB, 1]


def test_display_text_shows_bytes_of_cut_characters(tiny):
    tokenizer = Tokenizer.from_metadata(tiny)

    assert tokenizer.token_text(AB) == "ab"
    assert tokenizer.token_text(2 + 0xE2) == "\\xe2"
    assert tokenizer.token_text(0) == "<|im_end|>"
    assert tokenizer.token_text(5000) == "[5000]"


def test_a_stream_holds_back_an_incomplete_character(tiny):
    tokenizer = Tokenizer.from_metadata(tiny)
    euro = [2 + byte for byte in "€".encode()]
    stream = tokenizer.stream()

    pieces = [stream.push(token) for token in [A, *euro]]

    assert pieces == ["a", "", "", "€"]
    assert stream.finish() == ""


def test_a_stream_ends_an_incomplete_character_with_a_replacement(tiny):
    stream = Tokenizer.from_metadata(tiny).stream()

    assert stream.push(2 + 0xE2) == ""
    assert stream.finish() == "\ufffd"


def test_a_sentencepiece_text_begins_with_a_space_only_where_the_file_says():
    metadata = dict(GOLDEN["llama-spm"]["metadata"])

    with_space = Tokenizer.from_metadata(metadata)
    without = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.add_space_prefix": False})

    assert with_space.decode(encode(metadata, "Hello")) == " Hello"
    ids = without.encode("Hello", add_special=False, parse_special=False)
    assert without.decode(ids) == "Hello"


def test_characters_without_a_token_become_bytes():
    metadata = GOLDEN["llama-spm"]["metadata"]
    tokenizer = Tokenizer.from_metadata(metadata)

    ids = tokenizer.encode("\U0001f9ff", add_special=False, parse_special=False)

    assert [tokenizer.token_bytes(token) for token in ids] == [
        b" ",
        b"\xf0",
        b"\x9f",
        b"\xa7",
        b"\xbf",
    ]


@given(st.binary())
def test_the_byte_alphabet_loses_nothing(data):
    assert chars_to_bytes(bytes_to_chars(data)) == data


@pytest.fixture(scope="module")
def whole_alphabet():
    return Tokenizer.from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": [*ALPHABET, "he", "Ġt", "Ġthe"],
            "tokenizer.ggml.merges": ["h e", "Ġ t", "Ġt he"],
        }
    )


@given(st.text())
@example(" the  the\u3000\n\n  12é\U0001f600 ")
def test_text_comes_back_from_its_ids(whole_alphabet, text):
    ids = whole_alphabet.encode(text, add_special=False, parse_special=False)
    stream = whole_alphabet.stream()

    assert whole_alphabet.decode(ids) == text
    assert "".join(map(stream.push, ids)) + stream.finish() == text
