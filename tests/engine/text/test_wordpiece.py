import pytest

from engine.text.tokenizer import Tokenizer

P = "tokenizer.ggml."
TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "▁play",
    "ing",
    "s",
    "▁a",
    "▁,",
    "▁日",
    "▁A",
)


@pytest.fixture
def bert():
    """Give metadata of a WordPiece vocabulary."""
    return {
        P + "model": "bert",
        P + "tokens": list(TOKENS),
        P + "token_type": [3] * 5 + [1] * 7,
        P + "bos_token_id": 2,
        P + "seperator_token_id": 3,
        P + "unknown_token_id": 1,
    }


def words(metadata, text):
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    return [TOKENS[token] for token in ids]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("playing plays", ["▁play", "ing", "▁play", "s"]),
        ("playx a", ["[UNK]", "▁a"]),
        ("Playing,a", ["▁play", "ing", "▁,", "▁a"]),
        ("  a\u3000\n a ", ["▁a", "▁a"]),
        ("á ä", ["▁a", "▁a"]),
        ("pla\u200dying", ["▁play", "ing"]),
        ("play日a", ["▁play", "▁日", "▁a"]),
        ("a[MASK]a", ["▁a", "[MASK]", "▁a"]),
        ("", []),
    ],
)
def test_words_are_their_longest_pieces(bert, text, expected):
    assert words(bert, text) == expected


def test_text_stands_between_the_two_tokens_whatever_the_file_says(bert):
    bert[P + "add_bos_token"] = False
    tokenizer = Tokenizer.from_metadata(bert)

    assert tokenizer.encode("a", add_special=True, parse_special=False) == [2, 8, 3]
    assert tokenizer.encode("", add_special=True, parse_special=False) == [2, 3]


def test_case_and_accents_stay_where_the_file_says_so(bert):
    bert[P + "normalizer.lowercase"] = False

    assert words(bert, "A a") == ["▁A", "▁a"]
    assert words(bert, "á") == ["[UNK]"]
    assert words(bert | {P + "normalizer.strip_accents": True}, "á") == ["▁a"]


def test_a_vocabulary_without_an_unknown_token_leaves_words_out(bert):
    bert[P + "tokens"] = list(TOKENS[:10])
    bert[P + "token_type"] = [3] * 5 + [1] * 5
    del bert[P + "unknown_token_id"]

    assert words(bert, "a zzz a") == ["▁a", "▁a"]
