"""Headers that lie: planning refuses them in words, soon, and in little memory."""

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.options import Options
from engine.errors import ModelError, UserError
from engine.session import Session
from tests.engine.nano import nano_with

CPU = Options(devices=("none",), n_ctx=256)
MOST_BYTES = 64 * 2**20
COUNTS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "expert_count",
    "attention__head_count", "attention__head_count_kv", "attention__key_length",
    "attention__value_length", "rope__dimension_count", "rope__scaling__original_context_length",
    "expert_used_count", "expert_feed_forward_length",
)  # fmt: skip
REALS = (
    "attention__layer_norm_rms_epsilon", "rope__freq_base", "rope__scaling__factor",
    "rope__scaling__attn_factor",
)  # fmt: skip


def plan(path, options=CPU):
    session = Session()
    try:
        summary = session.open(path)
        return summary, session.plan(options)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"llama__block_count": 10**6}, r"block_count .* It is 1000000; .* from 1 to 512"),
        ({"llama__block_count": 512}, r"no tensor blk\.3\.attn_norm\.weight"),
        ({"llama__block_count": 0}, "block_count"),
        ({"llama__context_length": 2**32 - 1}, "context_length"),
        ({"llama__attention__head_count": 0}, "head_count"),
        ({"llama__attention__head_count": 2**31}, "head_count"),
        ({"llama__attention__head_count": 64}, "rope.dimension_count"),
        ({"llama__attention__head_count_kv": 3}, "head_count_kv"),
        ({"llama__attention__head_count_kv": 4}, r"attn_k\.weight does not fit"),
        ({"llama__attention__key_length": 2**24}, "key_length"),
        ({"llama__embedding_length": 128}, r"rope\.dimension_count .* It is 16; it must be 32"),
        ({"llama__feed_forward_length": 2**24}, r"ffn_gate\.weight does not fit"),
        ({"llama__feed_forward_length": "wide"}, "feed_forward_length"),
        ({"llama__rope__dimension_count": 15}, "even"),
        ({"tokenizer__ggml__tokens": ["a"]}, r"token_embd\.weight does not fit"),
        ({"llama__expert_count": 8}, "expert_used_count"),
        (
            {"llama__expert_count": 8, "llama__expert_used_count": 2},
            r"no tensor blk\.0\.ffn_gate_inp\.weight",
        ),
        ({"llama__attention__value_length": 8}, r"value_length .* It is 8; it must be 16"),
        ({"general__architecture": None}, "does not say which architecture"),
    ],
    ids=str,
)
def test_a_number_that_cannot_be_is_named(tmp_path, changes, said):
    path = nano_with(tmp_path, whole=False, **changes)

    with pytest.raises(ModelError, match=said) as raised:
        plan(path)

    session = Session()
    assert raised.value.title in session.open(path).plan_problem
    session.close()


def test_an_empty_vocabulary_is_that_of_the_embedding(tmp_path):
    summary, plans = plan(nano_with(tmp_path, whole=False, tokenizer__ggml__tokens=None))

    assert plans.n_layers == summary.n_layers == 3
    assert summary.run_problem


def test_a_tensor_that_is_missing_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no tensor blk\.1\.ffn_up\.weight"):
        plan(nano_with(tmp_path, whole=False, drop=("blk.1.ffn_up.weight",)))


def test_a_missing_output_is_the_embedding(tmp_path):
    _, plans = plan(nano_with(tmp_path, whole=False, drop=("output.weight",)))

    assert "token_embd.weight" in set(plans.prompt.name)


numbers = st.integers(-(2**31), 2**64 - 1) | st.sampled_from([0, 1, 2, 3, 4, 16, 64, 128, 2**24])
values = (
    numbers
    | st.booleans()
    | st.text(max_size=3)
    | st.lists(st.integers(0, 9), min_size=1, max_size=3)
)


@given(
    counts=st.dictionaries(st.sampled_from(COUNTS), values, min_size=1, max_size=3),
    reals=st.dictionaries(st.sampled_from(REALS), st.floats(width=32) | values, max_size=2),
    n_ctx=st.sampled_from([0, 1, 2**24]),
)
def test_whatever_a_header_says_it_is_planned_or_refused_in_words(
    tmp_path_factory, counts, reals, n_ctx
):
    changes = {f"llama__{name}": value for name, value in (counts | reals).items()}
    path = nano_with(tmp_path_factory.mktemp("hostile"), whole=False, **changes)
    tracemalloc.start()
    with contextlib.suppress(UserError):
        plan(path, Options(devices=("none",), n_ctx=n_ctx))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < MOST_BYTES
