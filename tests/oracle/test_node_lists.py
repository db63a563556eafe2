"""Our graphs equal recorded ones node by node: names, shapes, strides, sources, parameters."""

import re

import pytest

from tests.oracle import golden
from tests.oracle.graph_text import (
    graph_lines,
    node_lines,
    planned_graph,
    recorded_graph_lines,
    recorded_lines,
)

BIG = pytest.mark.big_set

REAL = [
    ("smollm2-135m-q4_1.p1.fa1", "smollm2-135m-q4_1"),
    pytest.param("gemma-3-270m-q4_k_m.p1.fa0", "gemma-3-270m-q4_k_m", marks=BIG),
    pytest.param("gemma-3-270m-q4_k_m.p1.fa1", "gemma-3-270m-q4_k_m", marks=BIG),
]
RANDOM = [
    ("nano-llama-f32-fa0", "nano-llama-f32"),
    ("nano-llama-f32-fa1", "nano-llama-f32"),
    pytest.param("tiny-llama-q4_0-fa1", "tiny-llama-q4_0", marks=BIG),
    pytest.param("tiny-qwen3moe-q8_0-fa1", "tiny-qwen3moe-q8_0", marks=BIG),
]


def assert_equal_lists(table, file, flash_attn):
    recorded = recorded_lines(table)
    n_tokens = recorded[0].ne[1]

    assert node_lines(planned_graph(file, n_tokens, flash_attn=flash_attn)) == recorded


@pytest.mark.parametrize(("name", "model"), REAL)
def test_a_real_models_nodes_are_the_recorded_ones(name, model):
    table = golden.node_list(name).read_text()

    assert_equal_lists(table, golden.header(model), name.endswith("fa1"))


@pytest.mark.parametrize(("name", "model"), RANDOM)
def test_a_random_models_nodes_are_the_recorded_ones(name, model):
    table = (golden.nodes_dir(name) / "nodes.tsv").read_text()

    assert_equal_lists(table, golden.model(model), name.endswith("fa1"))


DECODERS = [
    "deepseek2", "deepseek2-nomla", "falcon-h1", "gemma3", "gemma4", "gemma4-moe", "glm4moe",
    "gpt-oss", "gptneox", "gptneox-seq", "granitemoe", "llama4", "mamba", "phi3", "qwen3", "qwen35",
    "qwen35moe",
]  # fmt: skip
ENCODERS = ["bert", "nomic-bert"]
TEXTS = [
    f"{model}.{batch}fa{flash_attn}"
    for models, batches in ((DECODERS, ("", "tg-")), (ENCODERS, ("",)))
    for model in models
    for batch in batches
    for flash_attn in (0, 1)
]


@BIG
@pytest.mark.parametrize("name", TEXTS)
def test_a_tiny_models_nodes_have_the_recorded_sources_and_parameters(name):
    recorded = recorded_graph_lines(golden.path(f"arch/graphs/{name}.txt").read_text())
    model, _, batch = name.partition(".")
    header = golden.path(f"arch/headers/{model}.gguf-header")
    n_tokens = 1 if batch.startswith("tg-") else n_tokens_of(recorded)

    graph = planned_graph(header, n_tokens, flash_attn=batch.endswith("fa1"), n_ctx=256)

    assert graph_lines(graph) == recorded


def n_tokens_of(recorded):
    """Return the tokens of a prompt: the columns of the embeddings, which come first."""
    return int(re.search(r"\[\d+,(\d+)\]", recorded[0]).group(1))
