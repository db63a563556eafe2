import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.pretokenize import PRE_TOKENIZERS


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I'll pay 1000 $ !", ["I", "'ll", " pay", " 1000", " $", " !"]),
        ("gpt-2", "a  b\n\n c ", ["a", " ", " b", "\n\n", " c", " "]),
        ("gpt-2", "DON'T", ["DON", "'", "T"]),
        ("smollm", " 42 a1", [" ", "4", "2", " a", "1"]),
        ("smollm", "a  1", ["a", "  ", "1"]),
        ("llama-bpe", "DON'T 12345", ["DON", "'T", " ", "123", "45"]),
        ("llama-bpe", "x;\n\n  y (z)", ["x", ";\n\n", " ", " y", " (", "z", ")"]),
        ("qwen2", "a 12", ["a", " ", "1", "2"]),
        ("default", "a, 12345!", ["a", ",", " ", "123", "45", "!"]),
    ],
)
def test_words_are_cut_as_the_vocabulary_was_trained(name, text, words):
    assert PRE_TOKENIZERS[name].words(text) == words


@given(name=st.sampled_from(sorted(PRE_TOKENIZERS)), text=st.text())
def test_no_character_is_lost_or_doubled(name, text):
    words = PRE_TOKENIZERS[name].words(text)

    assert "".join(words) == text
    assert all(words)
