"""Every number of a model is read, and a wrong one is told by its key."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.gguf.reader import open_gguf
from engine.gguf.writer import header_bytes
from engine.model.arch import ARCHITECTURES, find_architecture
from engine.model.arch_keys import LARGEST
from engine.model.hparams import MOST_EXPERTS, MOST_LAYERS, MOST_PER_HEAD, Window, WindowKind
from tests.engine.model.made import made_file
from tests.engine.model.made_arch import N_EMBD, N_VOCAB, metadata_of, read

REQUIRED = (
    "embedding_length", "block_count", "feed_forward_length", "context_length",
    "attention__head_count", "attention__layer_norm_rms_epsilon",
)  # fmt: skip

EXPERTS = {"expert_count": 8, "expert_used_count": 2}

ORIGIN = " (embedding_length over attention.head_count, as attention.key_length is missing)"


def refused(tmp_path, arch="llama", /, **numbers):
    """Return the key that is named, without the architecture, and the sentence."""
    with pytest.raises(ModelError) as caught:
        read(tmp_path, arch, **numbers)
    title = caught.value.title
    assert title.startswith(f"The key {arch}.")
    assert title.endswith(" cannot be used.")
    return title.removeprefix(f"The key {arch}.").removesuffix(" cannot be used."), (
        caught.value.sentence
    )


# Numbers that all architectures have.


def test_numbers_are_read(tmp_path):
    hparams = read(tmp_path, "llama")
    (layer,) = set(hparams.layers)

    assert (hparams.arch, hparams.n_layer, hparams.n_embd) == ("llama", 2, 256)
    assert (layer.n_head, layer.n_head_kv, layer.n_ff) == (4, 2, 512)
    assert (layer.n_embd_head_k, layer.n_embd_head_v) == (64, 64)
    assert (layer.n_embd_q, layer.n_embd_k, layer.n_embd_v) == (256, 128, 128)
    assert (hparams.n_ctx_train, hparams.n_vocab, hparams.n_expert) == (2048, N_VOCAB, 0)
    assert hparams.norm_eps == pytest.approx(1e-5)


def test_layers_that_are_alike_share_their_numbers(tmp_path):
    first, second = read(tmp_path, "llama").layers

    assert first is second


def test_layers_may_differ(tmp_path):
    hparams = read(
        tmp_path, "llama", attention__head_count=[4, 2], attention__head_count_kv=[2, 1],
        feed_forward_length=np.array([512, 128], np.int32), attention__key_length=64,
        attention__value_length=64,
    )  # fmt: skip

    assert [(one.n_head, one.n_head_kv, one.n_ff) for one in hparams.layers] == [
        (4, 2, 512), (2, 1, 128),
    ]  # fmt: skip
    assert hparams.n_embd_v_max == 128


def test_what_is_missing_has_llamas_defaults(tmp_path):
    hparams = read(tmp_path, "llama", attention__head_count_kv=None)

    layer = hparams.layers[0]
    assert layer.n_head_kv == layer.n_head
    rope = layer.rope
    assert (rope.n_dims, rope.mode, rope.n_ctx_orig) == (64, 0, 2048)
    assert (rope.freq_base, rope.freq_scale, rope.ext_factor, rope.attn_factor) == (1e4, 1, 0, 1)


@pytest.mark.parametrize(
    ("numbers", "field", "value"),
    [
        ({"rope__freq_base": 5e5}, "freq_base", 5e5),
        ({"rope__scaling__factor": 4.0}, "freq_scale", 0.25),
        ({"rope__scale_linear": 2.0}, "freq_scale", 0.5),
        ({"rope__scaling__factor": 4.0, "rope__scaling__type": "none"}, "freq_scale", 1.0),
        ({"rope__scaling__factor": 0.0}, "freq_scale", 1.0),
        ({"rope__scaling__type": "yarn"}, "ext_factor", 1.0),
        ({"rope__scaling__original_context_length": 128}, "n_ctx_orig", 128),
        ({"rope__scaling__attn_factor": 1.5}, "attn_factor", 1.5),
    ],
)
def test_rotation_follows_its_keys(tmp_path, numbers, field, value):
    assert getattr(read(tmp_path, "llama", **numbers).layers[0].rope, field) == value


@pytest.mark.parametrize(("factor", "attn_factor"), [(4.0, 1.0), (1.0, 1.0), (0.5, 1.0745)])
def test_yarn_undoes_what_the_operation_multiplies_by(tmp_path, factor, attn_factor):
    """Stretched, both cancel; a shrunk context is not scaled, but the operation scales it."""
    numbers = {"rope__scaling__type": "yarn", "rope__scaling__factor": factor}

    rope = read(tmp_path, "llama", **numbers).layers[0].rope

    assert rope.attn_factor == pytest.approx(attn_factor, abs=1e-4)


def test_a_part_of_each_head_may_be_rotated(tmp_path):
    assert read(tmp_path, "gemma3", rope__dimension_count=32).layers[0].rope.n_dims == 32


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(tmp_path, key):
    assert refused(tmp_path, **{key: None}) == (
        key.replace("__", "."), "It is missing; it must be present.",
    )  # fmt: skip


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

    for value in (0, high + 1, "4", True):
        assert refused(tmp_path, **{key: value}) == (key, f"It is {value}; {allowed}")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("attention.head_count", 5, f"a divisor of {N_EMBD}"),
        ("attention.head_count_kv", 3, "a divisor of 4"),
        ("attention.value_length", 32, f"64, as long as a key{ORIGIN}"),
        ("rope.dimension_count", 15, f"even and at most 64{ORIGIN}"),
        ("rope.dimension_count", 66, f"even and at most 64{ORIGIN}"),
        ("rope.dimension_count", 32, f"64, the size of a head{ORIGIN}"),
        ("rope.freq_base", "much", "a number"),
        ("rope.freq_base", 0.0, "above 0"),
        ("rope.freq_base", -1.0, "above 0"),
        ("rope.scaling.factor", True, "a number"),
        ("rope.scaling.factor", 2.0**-30, "0, or from 1e-06 to 1e+06"),
        ("rope.scaling.type", 1, "one of none, linear, yarn, longrope"),
        ("rope.scaling.type", "cubic", "one of none, linear, yarn, longrope"),
        ("attention.layer_norm_rms_epsilon", "small", "a number"),
        ("attention.layer_norm_rms_epsilon", -1.0, "at least 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(tmp_path, key, value, allowed):
    told = refused(tmp_path, **{key: value})

    assert told == (key, f"It is {value}; it must be {allowed}.")


def test_a_head_of_an_odd_size_is_told_by_the_key_that_gives_it(tmp_path):
    sizes = {"attention__key_length": 63, "attention__value_length": 63}

    assert refused(tmp_path, **sizes) == ("attention.key_length", "It is 63; it must be even.")
    assert refused(tmp_path, embedding_length=12, attention__head_count_kv=4) == (
        "attention.head_count",
        "It is 4; it must be such that 12 elements give heads of an even size.",
    )


def test_of_two_head_sizes_the_missing_one_is_told_as_missing(tmp_path):
    assert refused(tmp_path, attention__key_length=32) == (
        "attention.value_length", "It is missing; it must be 32, as long as a key.",
    )  # fmt: skip


def test_an_array_of_the_wrong_length_is_told(tmp_path):
    assert refused(tmp_path, attention__head_count=[4, 4, 4]) == (
        "attention.head_count",
        "It is an array of 3; it must be one value, or 2 of them, one a layer.",
    )


def test_groups_are_checked_in_every_layer(tmp_path):
    named, sentence = refused(tmp_path, attention__head_count_kv=[2, 3])

    assert (named, sentence) == ("attention.head_count_kv", "It is 3; it must be a divisor of 4.")


# Experts.


def test_experts_are_counted(tmp_path):
    hparams = read(tmp_path, "llama", **EXPERTS)

    assert hparams.n_expert == 8
    assert {layer.n_expert_used for layer in hparams.layers} == {2}


def test_layers_may_use_different_numbers_of_experts(tmp_path):
    hparams = read(tmp_path, "llama", expert_count=8, expert_used_count=[2, 4])

    assert [layer.n_expert_used for layer in hparams.layers] == [2, 4]


@pytest.mark.parametrize(
    ("numbers", "key", "sentence"),
    [
        (
            {"expert_count": 4, "expert_used_count": 5}, "expert_used_count",
            "It is 5; it must be at most 4, the expert_count.",
        ),
        (
            {"expert_used_count": 2}, "expert_count",
            "It is missing; it must be a whole number from 2 to 1024, as expert_used_count is 2.",
        ),
        (
            {"expert_count": 4}, "expert_used_count",
            "It is missing; it must be a whole number from 1 to 4.",
        ),
        (
            {"expert_count": 4, "expert_used_count": 0}, "expert_used_count",
            "It is 0; it must be a whole number from 1 to 4.",
        ),
        (
            {**EXPERTS, "expert_group_count": 4}, "expert_group_used_count",
            "It is missing; it must be from 1 to 3.",
        ),
        (
            {"expert_count": MOST_EXPERTS + 1}, "expert_count",
            f"It is 1025; it must be a whole number from 0 to {MOST_EXPERTS}.",
        ),
    ],
)  # fmt: skip
def test_experts_that_cannot_be_are_told(tmp_path, numbers, key, sentence):
    assert refused(tmp_path, **numbers) == (key, sentence)


def test_an_expert_has_its_own_width(tmp_path):
    hparams = read(tmp_path, "qwen3moe", **EXPERTS, expert_feed_forward_length=96)

    assert {layer.n_ff_exp for layer in hparams.layers} == {96}


def test_without_a_width_of_their_own_experts_share_the_models(tmp_path):
    hparams = read(tmp_path, "qwen3moe", **EXPERTS)

    assert {layer.n_ff_exp for layer in hparams.layers} == {512 // 2}


def test_experts_need_a_width(tmp_path):
    named, sentence = refused(tmp_path, "qwen3moe", **EXPERTS, feed_forward_length=None)

    assert named == "expert_feed_forward_length"
    assert sentence == f"It is missing; it must be a whole number from 1 to {LARGEST}."


@pytest.mark.parametrize("arch", ["qwen3moe", "olmoe", "llama4", "gpt-oss", "deepseek2"])
def test_an_architecture_of_experts_needs_some(tmp_path, arch):
    allowed = f"it must be a whole number from 1 to {MOST_EXPERTS}."

    assert refused(tmp_path, arch) == ("expert_count", f"It is missing; {allowed}")
    assert refused(tmp_path, arch, expert_count=0) == ("expert_count", f"It is 0; {allowed}")


# The sliding window.

WINDOW = {"attention__sliding_window": 4, "block_count": 12}


def test_five_layers_of_six_slide(tmp_path):
    hparams = read(tmp_path, "gemma3", **WINDOW)

    assert hparams.window == Window(4)
    assert [layer.is_swa for layer in hparams.layers] == [True] * 5 + [False] + [True] * 5 + [False]


@pytest.mark.parametrize(
    ("pattern", "slides"),
    [
        (3, [True, True, False] * 4),
        (1, [False] * 12),
        (0, [True] * 12),
        ([True, False] * 6, [True, False] * 6),
    ],
)
def test_a_file_may_give_the_pattern(tmp_path, pattern, slides):
    numbers = {**WINDOW, "attention__sliding_window_pattern": pattern}

    assert [layer.is_swa for layer in read(tmp_path, "gemma3", **numbers).layers] == slides


def test_sliding_layers_rotate_by_a_base_of_their_own_and_are_not_stretched(tmp_path):
    hparams = read(
        tmp_path, "gemma3", **WINDOW, rope__freq_base=1e6, rope__scaling__factor=8.0,
        rope__freq_base_swa=2e4,
    )  # fmt: skip

    sliding, full = hparams.layers[0].rope, hparams.layers[5].rope
    assert (sliding.freq_base, sliding.freq_scale) == (2e4, 1.0)
    assert (full.freq_base, full.freq_scale) == (1e6, 0.125)


@pytest.mark.parametrize("n_swa", [None, 0])
def test_without_a_window_no_layer_slides(tmp_path, n_swa):
    hparams = read(tmp_path, "gemma3", attention__sliding_window=n_swa)

    assert hparams.window is None
    assert not any(layer.is_swa for layer in hparams.layers)


@pytest.mark.parametrize(
    ("window", "seen"),
    [
        (Window(3), [5, 6, 7]),
        (Window(3, WindowKind.CHUNKED), [6, 7]),
        (Window(4, WindowKind.SYMMETRIC), [5, 6, 7]),
    ],
)
def test_a_token_sees_through_its_window(window, seen):
    positions = np.arange(8)

    assert np.flatnonzero(~window.hides(positions, 7)).tolist() == seen


def test_the_largest_gemma_scales_attention_by_the_embeddings_share(tmp_path):
    sizes = {"attention__key_length": 16, "attention__value_length": 16}
    small = read(tmp_path, "gemma3", **sizes)
    large = read(tmp_path, "gemma3", **sizes, block_count=62)

    assert small.attention_scale == pytest.approx(16**-0.5)
    assert large.attention_scale == pytest.approx((N_EMBD / 4) ** -0.5)


def test_a_cap_on_logits_is_not_negative(tmp_path):
    assert read(tmp_path, "gemma3", final_logit_softcapping=30.0).final_logit_softcap == 30.0
    assert refused(tmp_path, "gemma3", final_logit_softcapping=-1.0)[0] == "final_logit_softcapping"


# The vocabulary.


@pytest.mark.parametrize(("tokens", "n_vocab"), [(None, 70), (["a", "b"], 2)])
def test_a_key_tells_how_many_tokens_there_are_where_the_file_lists_none(tmp_path, tokens, n_vocab):
    keys = {"tokenizer.ggml.tokens": tokens, "llama.vocab_size": 70}

    with made_file(tmp_path, keys=keys) as file:
        assert find_architecture("llama").read_hparams(file).n_vocab == n_vocab


@pytest.mark.parametrize("tokens", [None, 7, "abc"])
def test_without_a_list_of_tokens_the_embedding_tells(tmp_path, tokens):
    with made_file(tmp_path, keys={"tokenizer.ggml.tokens": tokens}) as file:
        assert (
            find_architecture("llama").read_hparams(file).n_vocab
            == file.tensor("token_embd.weight").ne[1]
        )


def test_a_file_without_any_vocabulary_is_refused(tmp_path):
    metadata = metadata_of("llama", {})
    del metadata["tokenizer.ggml.tokens"]
    path = tmp_path / "wordless.gguf"
    path.write_bytes(header_bytes(metadata, []))

    with open_gguf(path) as file, pytest.raises(ModelError, match="The file has no vocabulary"):
        find_architecture("llama").read_hparams(file)


# Whatever a header says.

COUNTS = (
    "block_count", "embedding_length", "feed_forward_length", "context_length", "expert_count",
    "attention__head_count", "attention__head_count_kv", "attention__key_length",
    "attention__value_length", "rope__dimension_count", "expert_used_count",
    "expert_feed_forward_length", "attention__sliding_window",
    "attention__sliding_window_pattern", "rope__scaling__original_context_length",
)  # fmt: skip
REALS = (
    "attention__layer_norm_rms_epsilon", "rope__freq_base", "rope__freq_base_swa",
    "rope__scaling__factor", "rope__scaling__attn_factor", "final_logit_softcapping",
)  # fmt: skip
values = (
    st.integers(-(2**31), 2**64 - 1)
    | st.sampled_from([0, 1, 2, 3, 4, 16, 64, 2**24])
    | st.booleans()
    | st.text(max_size=3)
    | st.lists(st.integers(0, 9), min_size=1, max_size=3)
    | st.lists(st.booleans(), min_size=2, max_size=2)
)


@given(
    arch=st.sampled_from(sorted(ARCHITECTURES)),
    counts=st.dictionaries(st.sampled_from(COUNTS), values, min_size=1, max_size=4),
    reals=st.dictionaries(st.sampled_from(REALS), st.floats(width=32) | values, max_size=2),
    scaling=st.sampled_from(["none", "linear", "yarn", "longrope"]),
)
def test_numbers_make_a_list_of_weights_or_are_refused_by_key(
    tmp_path_factory, arch, counts, reals, scaling
):
    folder = tmp_path_factory.mktemp("numbers")
    numbers = {**counts, **reals, "rope__scaling__type": scaling}
    refusals, kinds = [], ()
    try:
        kinds = find_architecture(arch).weights(read(folder, arch, **numbers))
    except ModelError as error:
        refusals.append(error.title)

    assert all(title.startswith(f"The key {arch}.") for title in refusals)
    assert all(n >= 1 for kind in kinds for n in kind.ne)
    assert refusals or kinds
