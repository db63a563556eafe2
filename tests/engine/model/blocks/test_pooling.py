"""Embeddings of models that write text: what their last norm gives, made one as asked."""

import numpy as np
import pytest

from engine.core.options import FlashAttn, Options, PoolingWish
from engine.core.plan import Batch, MemoryKind
from engine.core.tensor import Flag
from engine.gguf.reader import open_gguf
from engine.session import Session
from engine.trace.records import StepKind
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import FALCON_H1, GEMMA4, MAMBA, QWEN35
from tests.engine.nano import nano, nano_with

TEXT = "Once upon a time there was a model."
LAST = {"pooling_type": 3}
DECODERS = [
    ("llama", {}), ("qwen3", {}), ("gemma3", {"attention__sliding_window": 8}),
    ("gemma4", GEMMA4), ("mamba", MAMBA), ("falcon-h1", FALCON_H1), ("qwen35", QWEN35),
]  # fmt: skip


def options(pooling=PoolingWish.MODEL):
    return Options(n_gpu_layers=0, n_ctx=256, flash_attn=FlashAttn.ON, pooling=pooling)


def embedded(pooling, path=None):
    session = Session()
    session.open(path or nano())
    session.options = options(pooling)
    result = session.embed(TEXT)
    session.close()
    return result


@pytest.fixture(scope="module")
def rows():
    """Return what the last norm gives for each token of the text."""
    return embedded(PoolingWish.NONE).rows


def test_the_embedding_of_a_token_is_what_its_logits_are_made_of(rows):
    session = Session()
    session.open(nano())
    session.options = options()
    tokens = session.prompt_tokens(TEXT)
    logits = session.prepare().decode(tokens, StepKind.PROMPT).copy()
    session.close()
    with open_gguf(nano()) as file:
        info = file.tensor("output.weight" if "output.weight" in file else "token_embd.weight")
        head = file.tensor_bytes(info).view(np.float32).reshape(info.ne[1], info.ne[0])

    assert len(rows) == len(tokens)
    assert head @ rows[-1] == pytest.approx(logits, abs=1e-4)


@pytest.mark.parametrize(
    ("pooling", "pick"),
    [
        (PoolingWish.LAST, lambda rows: rows[-1]),
        (PoolingWish.CLS, lambda rows: rows[0]),
        (PoolingWish.MEAN, lambda rows: rows.mean(axis=0)),
    ],
)
def test_the_embeddings_of_tokens_become_one(rows, pooling, pick):
    (row,) = embedded(pooling).rows

    assert row == pytest.approx(pick(rows), abs=1e-5)


def test_a_file_that_says_how_gives_embeddings(rows, tmp_path):
    found = embedded(PoolingWish.MODEL, nano_with(tmp_path, llama__pooling_type=3))

    assert found.pooling == "last"
    assert found.rows[0] == pytest.approx(rows[-1], abs=1e-5)


@pytest.mark.parametrize(("arch", "numbers"), DECODERS)
def test_pooling_follows_the_logits_of_every_token(tmp_path, arch, numbers):
    with made_header(tmp_path, arch, **numbers, **LAST) as file:
        planner = planner_of(file)
        graph = planner.plan(Batch.PROMPT, planner.run_shape(5, 0)).built

    *_, logits, pooled = graph.graph.nodes
    assert (logits.name, logits.ne[1]) == ("result_output", 5)
    assert (pooled.name, pooled.ne[:2]) == ("result_embd_pooled", (256, 1))
    assert graph.logits is pooled
    assert pooled.src[0].name == "result_norm"
    assert all(node.flags & Flag.OUTPUT for node in (logits, pooled, pooled.src[0]))


def test_without_pooling_the_last_norm_is_the_embedding(tmp_path):
    with made_header(tmp_path, "qwen3") as file:
        planner = planner_of(file, pooling=PoolingWish.NONE)
        graph = planner.plan(Batch.PROMPT, planner.run_shape(5, 0)).built

    assert [node.name for node in graph.graph.nodes[-2:]] == ["result_embd_pooled", "result_output"]
    assert graph.logits is graph.graph.nodes[-2]


@pytest.mark.parametrize(
    ("arch", "numbers", "n_texts"),
    [("qwen3", {}, 256), ("gemma3", {"attention__sliding_window": 8}, 1), ("mamba", MAMBA, 1)],
)
def test_there_is_room_for_the_texts_of_the_embedding_tool(tmp_path, arch, numbers, n_texts):
    with made_header(tmp_path, arch, **numbers, **LAST) as file:
        planner = planner_of(file)

    shape = planner.worst_shape(Batch.TOKEN)
    assert (shape.n_tokens, shape.n_seqs) == (n_texts, n_texts)
    rows = {row.kind: row.n_bytes for row in planner.plan_set().memory.rows}
    assert rows[MemoryKind.OUTPUT] == (96 + 256) * n_texts * 4
