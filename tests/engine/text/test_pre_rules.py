"""Each rule against the words that llama.cpp's unicode_regex_split made with its patterns."""

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.pre_rules import PRE_TOKENIZERS
from engine.text.pretokenize import Form

RECORDED = json.loads(lzma.decompress((Path(__file__).parent / "words.json.xz").read_bytes()))


def test_every_name_that_llama_cpp_knows_has_a_rule():
    assert set(PRE_TOKENIZERS) == set(RECORDED["words"])


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_words_are_those_of_llama_cpp(name):
    words = [PRE_TOKENIZERS[name].words(text) for text in RECORDED["texts"]]

    assert words == RECORDED["words"][name]


@given(name=st.sampled_from(sorted(PRE_TOKENIZERS)), text=st.text())
def test_no_character_is_lost_or_doubled(name, text):
    words = PRE_TOKENIZERS[name].words(text)

    assert "".join(words) == text
    assert all(words)


def test_only_vocabularies_of_gemma_s_form_write_spaces_as_marks():
    marked = {name for name, rule in PRE_TOKENIZERS.items() if rule.form is Form.MARKED}

    assert marked == {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
