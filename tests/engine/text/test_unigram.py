import struct

import pytest

from engine.text.tokenizer import Tokenizer
from engine.text.unigram import Normalizer

P = "tokenizer.ggml."
SCORES = dict(
    zip(
        ("<s>", "</s>", "<unk>", "▁", "a", "b", "ab", "▁a", "bb", "<mask>"),
        (0.0, 0.0, 0.0, -2.0, -3.0, -3.0, -4.0, -4.5, -7.0, -90.0),
        strict=True,
    )
)
TOKENS = tuple(SCORES)


@pytest.fixture
def t5():
    """Give metadata of a unigram vocabulary."""
    return {
        P + "model": "t5",
        P + "tokens": list(SCORES),
        P + "scores": list(SCORES.values()),
        P + "token_type": [3, 3, 2] + [1] * 6 + [4],
        P + "bos_token_id": 0,
        P + "eos_token_id": 1,
        P + "unknown_token_id": 2,
        P + "add_space_prefix": True,
        P + "remove_extra_whitespaces": True,
    }


def pieces(metadata, text):
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    return [TOKENS[token] for token in ids]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", ["▁", "ab"]),
        ("abb", ["▁", "ab", "b"]),
        ("a   b", ["▁a", "▁", "b"]),
        ("axyb", ["▁a", "<unk>", "b"]),
        ("a<mask>", ["▁a", "<mask>"]),
        ("  ", []),
        ("", []),
    ],
)
def test_the_path_with_the_highest_sum_wins(t5, text, expected):
    assert pieces(t5, text) == expected


def test_the_last_token_is_added_unless_the_file_says_otherwise(t5):
    tokenizer = Tokenizer.from_metadata(t5)
    bare = Tokenizer.from_metadata(t5 | {P + "add_eos_token": False, P + "add_bos_token": True})

    assert tokenizer.encode("a", add_special=True, parse_special=False) == [7, 1]
    assert bare.encode("a", add_special=True, parse_special=False) == [0, 7]


def test_spaces_stay_where_the_file_does_not_merge_them(t5):
    t5 |= {P + "remove_extra_whitespaces": False, P + "add_space_prefix": False}

    assert pieces(t5, "a  b") == ["a", "▁", "▁", "b"]


def mapped(source: bytes, text: bytes) -> bytes:
    """Return a compiled map that rewrites one byte into a text.

    The root's children are at 256 ^ byte; the node's own child, at 512 ^ that, holds where the
    text stands.
    """
    array = [0] * 1024
    node = 256 ^ source[0]
    array[0] = 256 << 10
    array[node] = source[0] | 1 << 8 | 512 << 10
    array[node ^ 512] = 2
    blob = struct.pack(f"<{len(array)}I", *array)
    return struct.pack("<I", len(blob)) + blob + b"-\0" + text + b"\0"


def test_characters_are_rewritten_by_the_vocabulary_s_own_map():
    normalizer = Normalizer(
        mapped(b"A", b"a b"), ["<A>"], space_prefix=True, merge_spaces=True
    )  # fmt: skip

    assert normalizer.normalize("éA") == "▁éa▁b"
    assert normalizer.normalize("<A> A") == "▁<A>▁a▁b"


@pytest.mark.parametrize("charsmap", [b"", b"\1", b"\xff\xff\xff\xff", mapped(b"A", b"a")[:700]])
def test_a_map_that_is_cut_short_rewrites_nothing_else(charsmap):
    normalizer = Normalizer(charsmap, [], space_prefix=False, merge_spaces=False)

    assert normalizer.normalize("x yz") == "x▁yz"
