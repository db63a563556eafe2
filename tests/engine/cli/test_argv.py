"""Spellings that people know from llama.cpp."""

import pytest

from engine.cli.argv import spelled, unknown_option


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("plan x.gguf -fa", "plan x.gguf -fa=on"),
        ("plan -fa x.gguf", "plan -fa=on x.gguf"),
        ("plan x.gguf -fa 1 -c 5", "plan x.gguf -fa on -c 5"),
        ("plan x.gguf --flash-attn off", "plan x.gguf --flash-attn off"),
        ("plan x.gguf -fa -ngl 3", "plan x.gguf -fa=on -ngl 3"),
        ("why -m x.gguf norm-0", "why x.gguf norm-0"),
        ("why norm-0 --model x.gguf", "why x.gguf norm-0"),
        ("plan x.gguf -nopo --op-offload", "plan x.gguf --no-op-offload"),
        ("plan x.gguf --mmap -kvo --repack -nkvo", "plan x.gguf -nkvo"),
        ("run x.gguf --temperature 0 --n-predict 3", "run x.gguf --temp 0 --predict 3"),
        ("run x.gguf -p -m", "run x.gguf -p -m"),
        ("", ""),
    ],
)
def test_what_people_type_is_what_the_parser_reads(typed, read):
    assert spelled(typed.split()) == read.split()


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("plan x --tempp 0", "--tempp"),
        ("plan x --tempp=0", "--tempp"),
        ("plan x -s -1 --temp 0", None),
        ("plan x --temp -.5", None),
        ("plan x -", None),
    ],
)
def test_an_option_nobody_knows_is_found(words, unknown):
    assert unknown_option(words.split(), {"--temp", "-s"}) == unknown


def test_a_prompt_that_begins_with_a_dash_is_no_option():
    assert unknown_option(["run", "x", "-p", "- one thing"], {"-p"}) is None
