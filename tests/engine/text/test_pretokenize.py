import pytest

from engine.text.pre_rules import PRE_TOKENIZERS


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
        ("qwen35", "हिन्दी", ["हिन्दी"]),
        ("qwen2", "हिन्दी", ["ह", "िन", "्द", "ी"]),
        ("deepseek-v3", "a 12345日本x", ["a", " ", "123", "45", "日本", "x"]),
        ("gpt-4o", "HTTPServer's it", ["HTTPServer's", " it"]),
        ("tiny_aya", "n 1234567", ["n", " ", "1", "234", "567"]),
        ("superbpe", "1234567 a b", ["1", "234", "567", " a b"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("default", "a, 12345!", ["a", ",", " ", "123", "45", "!"]),
    ],
)
def test_words_are_cut_as_the_vocabulary_was_trained(name, text, words):
    assert PRE_TOKENIZERS[name].words(text) == words
