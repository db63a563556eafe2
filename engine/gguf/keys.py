"""Value types, and the names of the metadata keys that Splitscope reads.

Source: the GGUF specification and llama.cpp's key table. Names with `{arch}` belong to one
architecture; `arch_key` fills it in.
"""

from __future__ import annotations

import enum


class ValueType(enum.IntEnum):
    """The type of a metadata value; the value is its id in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


ARCHITECTURE = "general.architecture"
NAME = "general.name"
FILE_TYPE = "general.file_type"
ALIGNMENT = "general.alignment"
LICENSE = "general.license"
QUANTIZATION_VERSION = "general.quantization_version"

SPLIT_NO = "split.no"
SPLIT_COUNT = "split.count"
SPLIT_TENSORS_COUNT = "split.tensors.count"

TOKENIZER_MODEL = "tokenizer.ggml.model"
TOKENIZER_PRE = "tokenizer.ggml.pre"
TOKENIZER_TOKENS = "tokenizer.ggml.tokens"
TOKENIZER_SCORES = "tokenizer.ggml.scores"
TOKENIZER_TOKEN_TYPES = "tokenizer.ggml.token_type"
TOKENIZER_MERGES = "tokenizer.ggml.merges"
TOKENIZER_BOS = "tokenizer.ggml.bos_token_id"
TOKENIZER_EOS = "tokenizer.ggml.eos_token_id"
TOKENIZER_EOT = "tokenizer.ggml.eot_token_id"
TOKENIZER_UNK = "tokenizer.ggml.unknown_token_id"
TOKENIZER_SEP = "tokenizer.ggml.seperator_token_id"
TOKENIZER_PAD = "tokenizer.ggml.padding_token_id"
TOKENIZER_ADD_BOS = "tokenizer.ggml.add_bos_token"
TOKENIZER_ADD_EOS = "tokenizer.ggml.add_eos_token"
TOKENIZER_ADD_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
CHAT_TEMPLATE = "tokenizer.chat_template"

CONTEXT_LENGTH = "{arch}.context_length"
EMBEDDING_LENGTH = "{arch}.embedding_length"
BLOCK_COUNT = "{arch}.block_count"
FEED_FORWARD_LENGTH = "{arch}.feed_forward_length"
VOCAB_SIZE = "{arch}.vocab_size"
HEAD_COUNT = "{arch}.attention.head_count"
HEAD_COUNT_KV = "{arch}.attention.head_count_kv"
KEY_LENGTH = "{arch}.attention.key_length"
VALUE_LENGTH = "{arch}.attention.value_length"
KEY_LENGTH_SWA = "{arch}.attention.key_length_swa"
VALUE_LENGTH_SWA = "{arch}.attention.value_length_swa"
CAUSAL = "{arch}.attention.causal"
SLIDING_WINDOW = "{arch}.attention.sliding_window"
ATTENTION_SCALE = "{arch}.attention.scale"
NORM_EPS = "{arch}.attention.layer_norm_epsilon"
NORM_RMS_EPS = "{arch}.attention.layer_norm_rms_epsilon"
ROPE_DIMENSION_COUNT = "{arch}.rope.dimension_count"
ROPE_DIMENSION_COUNT_SWA = "{arch}.rope.dimension_count_swa"
ROPE_FREQ_BASE = "{arch}.rope.freq_base"
ROPE_FREQ_BASE_SWA = "{arch}.rope.freq_base_swa"
ROPE_SCALE_LINEAR = "{arch}.rope.scale_linear"
ROPE_SCALING_TYPE = "{arch}.rope.scaling.type"
ROPE_SCALING_FACTOR = "{arch}.rope.scaling.factor"
ROPE_SCALING_ATTN_FACTOR = "{arch}.rope.scaling.attn_factor"
ROPE_SCALING_ORIG_CTX = "{arch}.rope.scaling.original_context_length"
ROPE_SCALING_FINETUNED = "{arch}.rope.scaling.finetuned"
EXPERT_COUNT = "{arch}.expert_count"
EXPERT_USED_COUNT = "{arch}.expert_used_count"
EXPERT_FEED_FORWARD_LENGTH = "{arch}.expert_feed_forward_length"
EXPERT_SHARED_FEED_FORWARD_LENGTH = "{arch}.expert_shared_feed_forward_length"
EXPERT_WEIGHTS_SCALE = "{arch}.expert_weights_scale"
NEXTN_PREDICT_LAYERS = "{arch}.nextn_predict_layers"
POOLING_TYPE = "{arch}.pooling_type"
LOGIT_SCALE = "{arch}.logit_scale"
RESIDUAL_SCALE = "{arch}.residual_scale"
EMBEDDING_SCALE = "{arch}.embedding_scale"


def arch_key(key: str, arch: str) -> str:
    """`key` with its `{arch}` filled in: `llama.block_count` from BLOCK_COUNT and `llama`."""
    return key.replace("{arch}", arch)
