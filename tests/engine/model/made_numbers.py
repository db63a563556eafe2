"""Numbers of made models whose architectures need more than `made_arch` has; `__` is a dot."""

GEMMA4 = {
    "attention__sliding_window": 8,
    "attention__sliding_window_pattern": [True, False],
    "attention__key_length_swa": 32,
    "attention__value_length_swa": 32,
    "rope__dimension_count_swa": 32,
    "embedding_length_per_layer_input": 0,
}
MAMBA = {
    "attention__head_count": 0,
    "feed_forward_length": 0,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 512,
    "ssm__state_size": 16,
    "ssm__time_step_rank": 8,
}
FALCON_H1 = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 256,
    "ssm__state_size": 16,
    "ssm__time_step_rank": 8,
    "ssm__group_count": 2,
}
QWEN35 = {
    "rope__dimension_count": 16,
    "rope__dimension_sections": [3, 3, 2, 0],
    "full_attention_interval": 2,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 64,
    "ssm__state_size": 16,
    "ssm__time_step_rank": 4,
    "ssm__group_count": 2,
}
ENCODER = {
    "attention__head_count_kv": None,
    "attention__layer_norm_rms_epsilon": None,
    "attention__layer_norm_epsilon": 1e-12,
    "attention__causal": False,
    "pooling_type": 2,
    "tokenizer__ggml__token_type_count": 2,
}
