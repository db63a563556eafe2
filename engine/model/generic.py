"""Models of an architecture without a graph here: weights by layer, caches as far as known.

A weight called `blk.N.*` belongs to layer N, embeddings to the input, the rest to the output. Keys
that cannot be used are as good as missing. Nothing of such a model is computed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.core.graph import Graph
from engine.core.ops import Op, RopeParams
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import ModelError
from engine.model.arch import ARCHITECTURES, Architecture, find_architecture
from engine.model.arch_keys import (
    LARGEST,
    LOOK_HINT,
    TOKEN_EMBEDDING,
    ArchKeys,
    architecture,
    vocabulary_size,
)
from engine.model.blocks.graph_context import BuiltGraph
from engine.model.blocks.weight_list import OUTPUT_WEIGHT
from engine.model.hparams import MOST_EXPERTS, MOST_LAYERS, MOST_PER_HEAD, Hparams, LayerHparams
from engine.model.weights import LayerClass, WeightKind

if TYPE_CHECKING:
    from engine.gguf.reader import GgufFile, TensorInfo
    from engine.model.blocks.graph_context import GraphContext

SHORT_CONTEXT = 512
"""Tokens of context where a file does not say how many it was trained with."""

INPUT_TABLES = ("token_embd", "token_types", "position_embd", "per_layer_token_embd")
"""Tensors whose rows are picked before the first layer."""

_LAYER_OF = re.compile(r"blk\.(\d+)\.")


def architecture_of(file: GgufFile) -> Architecture:
    """What is known of a file's architecture; without a graph, what can be told of any model.

    ModelError when the file names none, or has no layers to place either.
    """
    name = architecture(file.metadata)
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if not _layers_of(file):
        raise ModelError(
            f"This version cannot plan {name} models.",
            "It has no graph for them, and the file has no layers (blk.N) that could be placed.",
            LOOK_HINT,
        )

    def kinds(_: Hparams) -> tuple[WeightKind, ...]:
        return _kinds(file)

    return Architecture(name, _hparams, kinds, _no_graph)


def check_has_graph(file: GgufFile) -> None:
    """ModelError when this version can place the model, and has no graph to compute."""
    find_architecture(architecture(file.metadata))


def _no_graph(_: GraphContext) -> BuiltGraph:
    nothing = Tensor(TensorType.F32, (0, 1, 1, 1))
    return BuiltGraph(Graph((), ()), {}, nothing, (), (), ())


def _hparams(keys: ArchKeys) -> Hparams:
    n_layer = _n_layer(keys)
    heads = _counts(keys, "attention.head_count", n_layer)
    heads_kv = _counts(keys, "attention.head_count_kv", n_layer, heads)
    n_embd = _count(keys, "embedding_length")
    share = n_embd // max(heads) if any(heads) else 0
    size_k = _count(keys, "attention.key_length", share, high=MOST_PER_HEAD)
    size_v = _count(keys, "attention.value_length", share, high=MOST_PER_HEAD)
    n_expert = _count(keys, "expert_count", high=MOST_EXPERTS)
    used = _counts(keys, "expert_used_count", n_layer)
    layers = tuple(
        LayerHparams(
            n_head,
            n_head_kv,
            size_k,
            size_v,
            n_ff=0,
            rope=RopeParams(0),
            # Where a file does not say how many, a weight of experts is tried with one of them.
            n_expert_used=n_used or 1,
            attends=n_head_kv > 0 and size_k > 0 and size_v > 0,
        )
        for n_head, n_head_kv, n_used in zip(heads, heads_kv, used, strict=True)
    )
    return Hparams(
        arch=keys.arch,
        n_ctx_train=_count(keys, "context_length") or SHORT_CONTEXT,
        n_embd=n_embd,
        n_vocab=_n_vocab(keys),
        layers=layers,
        norm_eps=0.0,
        n_expert=n_expert,
    )


def _n_layer(keys: ArchKeys) -> int:
    """Layers by the key, and at least as many as there are weights of."""
    numbers = [int(found.group(1)) for found in _layers_of(keys.file)]
    return max(1, _count(keys, "block_count", high=MOST_LAYERS), *(n + 1 for n in numbers))


def _layers_of(file: GgufFile) -> list[re.Match[str]]:
    matches = (_LAYER_OF.match(info.name) for info in file.tensors)
    return [found for found in matches if found and int(found.group(1)) < MOST_LAYERS]


def _n_vocab(keys: ArchKeys) -> int:
    try:
        return vocabulary_size(keys)
    except ModelError:
        return 0


def _count(keys: ArchKeys, key: str, default: int = 0, *, high: int = LARGEST) -> int:
    try:
        return keys.count(key, default, low=0, high=high)
    except ModelError:
        return default


def _counts(
    keys: ArchKeys, key: str, n_layer: int, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    known = default or (0,) * n_layer
    try:
        return keys.counts(key, n_layer, known, low=0, high=MOST_PER_HEAD)
    except ModelError:
        return known


def _kinds(file: GgufFile) -> tuple[WeightKind, ...]:
    found = [_kind(info) for info in file.tensors]
    if OUTPUT_WEIGHT not in file and TOKEN_EMBEDDING in file:
        ne = file.tensor(TOKEN_EMBEDDING).ne
        found.append(
            WeightKind(TOKEN_EMBEDDING, -1, LayerClass.OUTPUT, Op.MUL_MAT, ne, serves=OUTPUT_WEIGHT)
        )
    return tuple(found)


def _kind(info: TensorInfo) -> WeightKind:
    layer = _LAYER_OF.match(info.name)
    if layer is not None and int(layer.group(1)) < MOST_LAYERS:
        place, il = LayerClass.REPEATING, int(layer.group(1))
    else:
        is_input = info.name.startswith(INPUT_TABLES) and not _is_row(info)
        place, il = (LayerClass.INPUT if is_input else LayerClass.OUTPUT), -1
    return WeightKind(info.name, il, place, _op_of(info, place), info.ne)


def _op_of(info: TensorInfo, place: LayerClass) -> Op:
    """The operation that tensors of this name and shape usually take part in."""
    if place is LayerClass.INPUT:
        return Op.GET_ROWS
    of_experts = "_exps." in info.name
    if info.name.endswith(".bias"):
        return Op.ADD_ID if of_experts else Op.ADD
    if _is_row(info):
        return Op.MUL
    return Op.MUL_MAT_ID if of_experts else Op.MUL_MAT


def _is_row(info: TensorInfo) -> bool:
    return info.ne[1:] == (1, 1, 1)
