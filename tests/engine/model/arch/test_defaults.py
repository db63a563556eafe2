"""What a key stands for that a file lacks."""

import pytest

from engine.model.hparams_parts import Gating, Pooling
from tests.engine.model.made_arch import made_header, planner_of, read
from tests.engine.model.made_numbers import ENCODER, QWEN35

LAYER_NORMS = {
    "attention__layer_norm_rms_epsilon": None,
    "attention__layer_norm_epsilon": 1e-5,
}
EXPERTS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "expert_shared_count": 2,
}
LATENT = {**EXPERTS, "attention__head_count_kv": 4, "attention__q_lora_rank": 0}
LATENT |= {"attention__kv_lora_rank": 64, "rope__dimension_count": 32}
SCALED = {"logit_scale": 8.0}
WINDOW = {**EXPERTS, "attention__sliding_window": 8, "block_count": 3}

DEFAULTS = [
    ("bert", ENCODER, "attention__causal", lambda hp: hp.encoder.hides_later, True),
    ("bert", ENCODER, "pooling_type", lambda hp: hp.pooling, None),
    ("qwen3", {}, "pooling_type", lambda hp: hp.pooling, None),
    ("glm4moe", EXPERTS, "expert_weights_norm", lambda hp: hp.routing.normalises, False),
    ("glm4moe", EXPERTS, "expert_gating_func", lambda hp: hp.routing.gating, Gating.SIGMOID),
    ("glm4moe", EXPERTS, "leading_dense_block_count", lambda hp: hp.layers[0].n_expert_used, 2),
    ("glm4moe", EXPERTS, "nextn_predict_layers", lambda hp: hp.n_layer, 2),
    ("deepseek2", LATENT, "expert_weights_norm", lambda hp: hp.routing.normalises, False),
    ("deepseek2", LATENT, "expert_weights_scale", lambda hp: hp.routing.scale, 0.0),
    ("deepseek2", LATENT, "attention__temperature_scale", lambda hp: hp.temperature, None),
    ("command-r", LAYER_NORMS, "logit_scale", lambda hp: hp.logit_scale, 0.0),
    ("granite", SCALED, "residual_scale", lambda hp: hp.residual_scale, 0.0),
    ("granite", SCALED, "embedding_scale", lambda hp: hp.embedding_scale, 0.0),
    ("granite", SCALED, "attention__scale", lambda hp: hp.attention_scale, 0.0),
    ("granite", SCALED, "rope__scaling__finetuned", lambda hp: hp.layers[0].rotates, True),
    ("gemma3", {}, "final_logit_softcapping", lambda hp: hp.final_logit_softcap, 0.0),
    (
        "gpt-oss", WINDOW, "attention__sliding_window_pattern",
        lambda hp: [layer.is_swa for layer in hp.layers], [True, False, True],
    ),
    (
        "qwen35", {**QWEN35, "block_count": 5}, "full_attention_interval",
        lambda hp: [layer.attends for layer in hp.layers], [False, False, False, True, False],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "numbers", "key", "value_of", "value"), DEFAULTS)
def test_a_key_that_is_missing_has_a_default(tmp_path, arch, numbers, key, value_of, value):
    assert value_of(read(tmp_path, arch, **{**numbers, key: None})) == value


def test_an_encoder_leaves_embeddings_as_they_are_unless_its_file_says_how(tmp_path):
    with made_header(tmp_path, "bert", **{**ENCODER, "pooling_type": None}) as file:
        assert planner_of(file).model.pooling is Pooling.NONE


@pytest.mark.parametrize(("flag", "n_attending"), [(True, 0), (False, 2)])
def test_one_flag_stands_for_every_layer(tmp_path, flag, n_attending):
    hp = read(tmp_path, "qwen35", **QWEN35, attention__recurrent_layers=flag)

    assert sum(layer.attends for layer in hp.layers) == n_attending
