"""Every number of a model is read, and a wrong one is told by its key."""

import pytest

from engine.errors import ModelError
from engine.model.hparams import LARGEST, MOST_LAYERS, MOST_PER_HEAD, read_hparams
from tests.engine.model.made import N_EMBD, N_VOCAB, made_file

NUMBERS = (
    "embedding_length", "block_count", "feed_forward_length", "context_length",
    "attention.head_count",
)  # fmt: skip


def read(tmp_path, **keys):
    with made_file(tmp_path, keys={f"llama.{k}": v for k, v in keys.items()}) as file:
        return read_hparams(file)


def refused(tmp_path, key, value):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, **{key: value})
    assert caught.value.title == f"The key llama.{key} cannot be used."
    return caught.value.sentence


def test_numbers_are_read(tmp_path):
    hparams = read(tmp_path)

    assert (hparams.arch, hparams.n_layer, hparams.n_embd, hparams.n_ff) == ("llama", 2, 64, 128)
    assert (hparams.n_head, hparams.n_head_kv, hparams.n_embd_head) == (4, 2, 16)
    assert (hparams.n_embd_q, hparams.n_embd_kv) == (64, 32)
    assert (hparams.n_ctx_train, hparams.n_vocab, hparams.n_expert) == (512, N_VOCAB, 0)
    assert hparams.norm_eps == pytest.approx(1e-5)


def test_what_is_missing_has_llamas_defaults(tmp_path):
    hparams = read(tmp_path, **{"attention.head_count_kv": None})

    assert hparams.n_head_kv == hparams.n_head
    rope = hparams.rope
    assert (rope.n_dims, rope.mode, rope.n_ctx_orig) == (16, 0, 512)
    assert (rope.freq_base, rope.freq_scale, rope.ext_factor, rope.attn_factor) == (1e4, 1, 0, 1)


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"rope.freq_base": 5e5}, "freq_base", 5e5),
        ({"rope.dimension_count": 8}, "n_dims", 8),
        ({"rope.scaling.factor": 4.0}, "freq_scale", 0.25),
        ({"rope.scale_linear": 2.0}, "freq_scale", 0.5),
        ({"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}, "freq_scale", 1.0),
        ({"rope.scaling.factor": 0.0}, "freq_scale", 1.0),
        ({"rope.scaling.type": "yarn"}, "ext_factor", 1.0),
        ({"rope.scaling.original_context_length": 128}, "n_ctx_orig", 128),
        ({"rope.scaling.attn_factor": 1.5}, "attn_factor", 1.5),
    ],
)
def test_rotation_follows_its_keys(tmp_path, keys, field, value):
    assert getattr(read(tmp_path, **keys).rope, field) == value


def test_the_size_of_a_head_can_be_given(tmp_path):
    assert read(tmp_path, **{"attention.key_length": 32}).n_embd_kv == 64


@pytest.mark.parametrize("key", [*NUMBERS, "attention.layer_norm_rms_epsilon"])
def test_a_missing_key_is_named(tmp_path, key):
    assert refused(tmp_path, key, None) == "It is missing; it must be present."


@pytest.mark.parametrize(
    ("key", "high"),
    [
        ("embedding_length", LARGEST),
        ("feed_forward_length", LARGEST),
        ("context_length", LARGEST),
        ("block_count", MOST_LAYERS),
        ("attention.head_count", MOST_PER_HEAD),
        ("attention.key_length", MOST_PER_HEAD),
    ],
)
def test_a_count_has_bounds(tmp_path, key, high):
    allowed = f"it must be a whole number from 1 to {high}."

    assert refused(tmp_path, key, 0) == f"It is 0; {allowed}"
    assert refused(tmp_path, key, high + 1) == f"It is {high + 1}; {allowed}"
    assert refused(tmp_path, key, "4") == f"It is 4; {allowed}"
    assert refused(tmp_path, key, True) == f"It is True; {allowed}"


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("attention.head_count", 5, f"a divisor of {N_EMBD}"),
        ("attention.head_count_kv", 3, "a divisor of 4"),
        ("rope.dimension_count", 15, "even and at most 16"),
        ("rope.dimension_count", 18, "even and at most 16"),
        ("rope.freq_base", "much", "a number"),
        ("rope.scaling.factor", True, "a number"),
        ("rope.scaling.type", 1, "a text"),
        ("attention.layer_norm_rms_epsilon", "small", "a number"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(tmp_path, key, value, allowed):
    assert refused(tmp_path, key, value) == f"It is {value}; it must be {allowed}."


@pytest.mark.parametrize("value", [None, "", 7])
def test_a_file_must_name_its_architecture(tmp_path, value):
    with (
        made_file(tmp_path, keys={"general.architecture": value}) as file,
        pytest.raises(ModelError, match=r"does not say which architecture.*general\.architecture"),
    ):
        read_hparams(file)


def test_the_vocabulary_is_counted_in_its_tokens(tmp_path):
    with made_file(tmp_path, keys={"tokenizer.ggml.tokens": ["a", "b", "c"]}) as file:
        assert read_hparams(file).n_vocab == 3


@pytest.mark.parametrize("tokens", [None, 7, "abc"])
def test_without_a_list_of_tokens_the_embedding_tells(tmp_path, tokens):
    with made_file(tmp_path, keys={"tokenizer.ggml.tokens": tokens}) as file:
        assert read_hparams(file).n_vocab == N_VOCAB


def test_a_file_without_any_vocabulary_is_refused(tmp_path):
    with (
        made_file(tmp_path, tensors={"output_norm.weight": (N_EMBD,)}) as file,
        pytest.raises(ModelError, match="The file has no vocabulary"),
    ):
        read_hparams(file)
