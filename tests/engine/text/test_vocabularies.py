"""Every kind of vocabulary against the lines that llama.cpp made of it."""

import json
import lzma
import os
from pathlib import Path

import pytest

from engine.text.tokenizer import Tokenizer
from tests.data.pack_vocabularies import NAMES, PACKED
from tests.oracle import golden
from tests.oracle.run_tokenizers import differences, recorded_lines, recorded_names, vocabulary

CUT = json.loads(lzma.decompress(PACKED.read_bytes()))
"""By name: real vocabularies cut to what their lines reach, and the lines."""

VOCABS_VARIABLE = "SPLITSCOPE_VOCABS"


@pytest.mark.parametrize("name", NAMES)
def test_lines_become_the_ids_of_llama_cpp(name):
    tokenizer = Tokenizer.from_metadata(CUT[name]["metadata"])

    for text, ids, special in CUT[name]["lines"]:
        ours = tokenizer.encode(text, add_special=special, parse_special=special)

        assert ours == ids, text


REWRITTEN = {"bert-bge", "llama-spm", "nomic-bert-moe", "phi-3"}
"""These change case or put spaces of their own before words."""


@pytest.mark.parametrize("name", sorted({*NAMES} - REWRITTEN))
def test_ids_become_the_line_again(name):
    tokenizer = Tokenizer.from_metadata(CUT[name]["metadata"])
    starts = tokenizer.decode(tokenizer.encode("", add_special=True, parse_special=True))

    for text, ids, special in CUT[name]["lines"]:
        decoded = tokenizer.decode(ids)
        whole = decoded.removeprefix(starts) if special else decoded

        assert whole == text


def test_only_a_vocabulary_that_names_no_rule_has_a_fault():
    faulty = {
        name for name in NAMES if Tokenizer.from_metadata(CUT[name]["metadata"]).faults
    }  # fmt: skip

    assert faulty == {"gpt-neox"}


def vocabulary_folders() -> list[Path]:
    """Return the folders with whole vocabularies and recorded lines."""
    named = os.environ.get(VOCABS_VARIABLE)
    if not named:
        pytest.skip(f"the vocabulary files are not here ({VOCABS_VARIABLE})")
    lines = golden.path("tokenize/gpt-2.tsv").parent
    return [lines, Path(named), golden.header("gemma-3-270m-q4_k_m").parent]


@pytest.mark.big_set
def test_whole_vocabularies_make_all_recorded_lines():
    folders = vocabulary_folders()

    found = {
        name: differences(vocabulary(name, folders), recorded_lines(name, folders))
        for name in recorded_names(folders)
    }

    assert len(found) >= 17
    assert not any(found.values()), found
