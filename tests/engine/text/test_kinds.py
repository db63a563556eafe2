"""What a file says of its tokenizer, and what stands in where that cannot be used."""

import numpy as np
import pytest

from engine.gguf.strings import StringArray
from engine.text.bpe import ALPHABET
from engine.text.tokenizer import Tokenizer

P = "tokenizer.ggml."
TEXT = "ab cab"


@pytest.fixture
def bpe():
    """Give metadata of a byte-level vocabulary with two merges."""
    return {
        P + "model": "gpt2",
        P + "pre": "gpt-2",
        P + "tokens": ["<|im_end|>", *ALPHABET, "ab", "Ġc"],
        P + "token_type": [3] + [1] * 258,
        P + "merges": ["a b", "Ġ c"],
        P + "eos_token_id": 0,
    }


@pytest.fixture
def spm():
    """Give metadata of a SentencePiece vocabulary."""
    pieces = ["▁", "a", "b", "c", "ab", "▁c"]
    return {
        P + "model": "llama",
        P + "tokens": ["<unk>", "<s>", "</s>", *pieces],
        P + "token_type": [2, 3, 3] + [1] * len(pieces),
        P + "scores": [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -1.0, -2.0],
    }


def encoded(metadata, text=TEXT, *, special=False):
    tokenizer = Tokenizer.from_metadata(metadata)
    return tokenizer.encode(text, add_special=special, parse_special=special)


def pieces(metadata, text=TEXT):
    tokens = metadata[P + "tokens"]
    return [tokens[token] for token in encoded(metadata, text)]


def faults(metadata):
    return " ".join(Tokenizer.from_metadata(metadata).faults)


def test_a_sound_description_has_no_fault(bpe, spm):
    assert faults(bpe) == faults(spm) == ""
    assert pieces(bpe) == ["ab", "Ġc", "ab"]
    assert pieces(spm) == ["▁", "ab", "▁c", "ab"]


def test_an_unknown_pre_tokenizer_gives_way_to_the_default_one(bpe):
    bpe[P + "pre"] = "unheard-of"

    assert faults(bpe) == (
        'Its pre-tokenizer is "unheard-of", which is not known; "default" is used instead, which '
        "may cut words elsewhere."
    )
    assert pieces(bpe) == ["ab", "Ġc", "ab"]


@pytest.mark.parametrize("model", ["unheard-of", "rwkv", "plamo2", "", None, 7])
def test_an_unknown_tokenizer_gives_way_to_the_longest_tokens(spm, model):
    spm[P + "model"] = model

    assert "The longest listed token at each place is used instead" in faults(spm)
    assert pieces(spm) == ["ab", "▁c", "ab"]


def test_a_file_without_tokens_is_given_bytes():
    tokenizer = Tokenizer.from_metadata({P + "model": "gpt2"})

    assert tokenizer.encode("aé", add_special=True, parse_special=True) == [0x61, 0xC3, 0xA9]
    assert tokenizer.token_text(0x61) == "[97]"
    assert "The bytes of the text are used as tokens instead" in tokenizer.faults[-1]


def test_bytes_of_characters_without_a_token_stay_in_the_vocabulary(spm):
    spm |= {
        P + "model": "unheard-of",
        P + "tokens": ["x", "y", "<0x7A>"],
        P + "token_type": [1] * 3,
    }

    assert encoded(spm, "xz\t") == [0, 2, 0x09 % 3]


def test_merges_that_are_missing_count_as_none(bpe):
    del bpe[P + "merges"]

    assert "The file has no list of merges (tokenizer.ggml.merges); it counts as empty." in faults(
        bpe
    )
    assert pieces(bpe) == ["a", "b", "Ġ", "c", "a", "b"]


def test_merges_of_another_type_are_told_as_such(bpe):
    bpe[P + "merges"] = [1, 2]

    assert faults(bpe) == "tokenizer.ggml.merges is not a list of texts; it counts as empty."


@pytest.mark.parametrize("is_packed", [True, False])
def test_merges_that_are_not_two_parts_are_counted(bpe, is_packed):
    # The length of the last one looks like a space where it stands before its bytes.
    merges = ["a b", "nospace", "a b c", "", " b", "Ġ c", "x" * 16 + " " + "x" * 15]
    bpe[P + "merges"] = StringArray.of(merges) if is_packed else merges

    assert faults(bpe) == (
        "Of the file's 7 merges (tokenizer.ggml.merges) 4 are not two parts with a space between, "
        'such as number 1, "nospace"; they join nothing.'
    )
    assert pieces(bpe) == ["ab", "Ġc", "ab"]


@pytest.mark.parametrize(
    ("key", "found", "instead"),
    [
        ("bos_token_id", 99999, "token 11 is used instead"),
        ("eot_token_id", "first", "it counts as not stated"),
        ("eos_token_id", -1, "token 11 is used instead"),
        ("fim_pad_token_id", 259, "it counts as not stated"),
    ],
)
def test_a_special_token_that_is_none_of_those_listed_is_told(bpe, key, found, instead):
    bpe |= {P + key: found, P + "add_bos_token": True}

    assert faults(bpe) == f"{P}{key} is {found}, which is none of the 259 tokens; {instead}."


def test_kimi_s_vocabulary_needs_no_merges(bpe):
    del bpe[P + "merges"]
    bpe[P + "pre"] = "kimi-k2"

    assert faults(bpe) == ""


def test_scores_that_are_missing_count_as_zero(spm):
    spm[P + "scores"] = np.array([0.0, 0.0], np.float32)

    assert "lists 9 tokens but only 2 scores; the rest score 0" in faults(spm)
    assert pieces(spm) == ["▁", "ab", "▁c", "ab"]


def test_token_types_that_are_missing_count_as_normal(bpe):
    bpe[P + "token_type"] = [3]

    assert "lists 259 tokens but only 1 token types; the rest count as normal" in faults(bpe)
    assert encoded(bpe, "ab<|im_end|>", special=True)[-1] == 0


@pytest.mark.parametrize("value", ["many", [["x"]], [1.5, "x"], [10**30], {"a": 1}, 3], ids=repr)
@pytest.mark.parametrize("name", ["tokens", "merges", "scores", "token_type", "pre", "model"])
def test_a_value_of_any_type_is_no_obstacle(bpe, spm, name, value):
    for metadata in (bpe, spm):
        for model in ("gpt2", "llama", "bert", "t5", "gemma4", "unheard-of"):
            metadata |= {P + "model": model, P + name: value}

            ids = encoded(metadata, "ab é<|im_end|>", special=True)

            assert all(isinstance(token, int) for token in ids)


@pytest.mark.parametrize("value", ["1", -1, 10**12, 1.5, None, [1]], ids=repr)
def test_an_id_that_is_no_token_counts_as_not_stated(spm, value):
    for name in ("bos", "eos", "unknown", "fim_pad"):
        spm[f"{P}{name}_token_id"] = value

    tokenizer = Tokenizer.from_metadata(spm)

    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)


def test_gemma_4_merges_whole_lines_and_falls_back_on_byte_tokens():
    metadata = {
        P + "model": "gemma4",
        P + "tokens": [
            "<bos>",
            "<turn|>",
            "a",
            "▁",
            "▁a",
            "\n",
            "\n\n",
            "<0xC3>",
            "<0xA9>",
            "</s>",
        ],
        P + "token_type": [3, 3, 1, 1, 1, 1, 1, 6, 6, 1],
        P + "merges": ["▁ a", "\n \n"],
        P + "bos_token_id": 0,
        P + "add_bos_token": False,
    }

    assert pieces(metadata, "a a\n\né") == ["a", "▁a", "\n\n", "<0xC3>", "<0xA9>"]
    assert encoded(metadata, "a", special=True) == [0, 2]
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.decode([4, 6, 7, 8]) == " a\n\né"
    assert tokenizer.faults == ()


def test_a_slash_s_of_gemma_4_is_text_where_its_own_end_marks_are(spm):
    spm[P + "tokens"][3] = "<|tool_response>"
    del spm[P + "token_type"]
    spm[P + "eos_token_id"] = 1

    assert Tokenizer.from_metadata(spm).end_ids == {1, 3}


def test_fill_in_the_middle_tokens_are_control_tokens(bpe):
    bpe[P + "tokens"][1] = "<|fim_prefix|>"

    assert encoded(bpe, "<|fim_prefix|>", special=True) == [1]
    assert 1 not in Tokenizer.from_metadata(bpe).end_ids


def test_a_stated_fill_in_the_middle_token_makes_no_other_one(bpe):
    bpe[P + "tokens"][1] = "<|fim_prefix|>"
    bpe[P + "prefix_token_id"] = 2

    assert encoded(bpe, "<|fim_prefix|>", special=True) != [1]


def test_the_mask_of_an_encoder_swallows_the_space_before_it(spm):
    spm |= {"general.architecture": "nomic-bert-moe", P + "add_bos_token": False}
    spm[P + "tokens"][0] = "<mask>"

    assert encoded(spm, "ab  <mask> ab", special=True) == encoded(spm, "ab<mask> ab", special=True)


def test_a_first_token_that_nobody_named_is_assumed_for_most_families_only(bpe):
    bpe[P + "add_bos_token"] = True

    assert encoded(bpe, "ab", special=True)[0] == 11
    assert encoded(bpe | {P + "pre": "glm4"}, "ab", special=True) == encoded(bpe, "ab")


def test_words_without_white_space_are_merged_one_by_one(bpe):
    bpe |= {P + "model": "whitespace", P + "pre": "whitespace"}

    assert pieces(bpe, "A b\n ab") == ["a", "b", "ab"]
    assert pieces(bpe | {P + "normalizer.lowercase": False}, "A b") == ["A", "b"]
