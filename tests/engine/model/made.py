"""Small llama files made to order: two layers, whatever keys and tensors a test wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.types import TensorType
from engine.gguf.reader import GgufFile, open_gguf
from engine.gguf.writer import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

N_EMBD, N_FF, N_HEAD, N_HEAD_KV, N_VOCAB, N_LAYER = 64, 128, 4, 2, 96, 2
N_KV = N_EMBD // N_HEAD * N_HEAD_KV

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 512,
    "llama.embedding_length": N_EMBD,
    "llama.block_count": N_LAYER,
    "llama.feed_forward_length": N_FF,
    "llama.attention.head_count": N_HEAD,
    "llama.attention.head_count_kv": N_HEAD_KV,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}

LAYER_SHAPES = {
    "attn_norm.weight": (N_EMBD,),
    "attn_q.weight": (N_EMBD, N_EMBD),
    "attn_k.weight": (N_EMBD, N_KV),
    "attn_v.weight": (N_EMBD, N_KV),
    "attn_output.weight": (N_EMBD, N_EMBD),
    "ffn_norm.weight": (N_EMBD,),
    "ffn_gate.weight": (N_EMBD, N_FF),
    "ffn_down.weight": (N_FF, N_EMBD),
    "ffn_up.weight": (N_EMBD, N_FF),
}

BIAS_SHAPES = {
    "attn_q.bias": (N_EMBD,),
    "attn_k.bias": (N_KV,),
    "attn_v.bias": (N_KV,),
    "attn_output.bias": (N_EMBD,),
    "ffn_gate.bias": (N_FF,),
    "ffn_down.bias": (N_EMBD,),
    "ffn_up.bias": (N_FF,),
}

ROPE_FREQS = {"rope_freqs.weight": (N_EMBD // N_HEAD // 2,)}


def shapes(*, tied: bool = False, biases: bool = False) -> dict[str, tuple[int, ...]]:
    """The tensors of a llama file, in order."""
    made: dict[str, tuple[int, ...]] = {"token_embd.weight": (N_EMBD, N_VOCAB)}
    layer = {**LAYER_SHAPES, **(BIAS_SHAPES if biases else {})}
    for il in range(N_LAYER):
        made |= {f"blk.{il}.{name}": ne for name, ne in layer.items()}
    made["output_norm.weight"] = (N_EMBD,)
    if not tied:
        made["output.weight"] = (N_EMBD, N_VOCAB)
    return made


def made_file(
    folder: Path,
    *,
    keys: dict[str, Any] | None = None,
    tensors: dict[str, tuple[int, ...]] | None = None,
) -> GgufFile:
    """An opened file; a key whose value is None is left out."""
    metadata = {k: v for k, v in {**METADATA, **(keys or {})}.items() if v is not None}
    path = folder / "made.gguf"
    write_gguf(
        path,
        metadata,
        [
            (name, TensorType.F32, ne, np.zeros(ne, np.float32))
            for name, ne in (shapes() if tensors is None else tensors).items()
        ],
    )
    return open_gguf(path)
