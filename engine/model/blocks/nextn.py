"""Weights of layers that guess further tokens. Nobody loads them. Source: ARCH.md 4, glm4moe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ops import Op
from engine.model.blocks.weight_list import WeightList

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.hparams import Hparams


def with_nextn_weights(
    table: WeightList,
    hp: Hparams,
    layer_weights: Callable[[WeightList, Hparams, int], None],
) -> None:
    """Write down the weights of every layer: those that guess are known and not loaded."""
    for il in range(hp.n_layer):
        layer_weights(table, hp, il)
    behind = WeightList()
    for il in range(hp.n_layer, hp.n_layer_all):
        layer_weights(behind, hp, il)
        _nextn_weights(behind, hp, il)
    table.known_only(behind.finish())


def _nextn_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """What such a layer has beside those of an ordinary one."""
    weights.matrix(il, "nextn.eh_proj", 2 * hp.n_embd, hp.n_embd)
    for name in ("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"):
        weights.norm(il, name, hp.n_embd)
    weights.layer(il, "nextn.embed_tokens.weight", Op.GET_ROWS, hp.n_embd, hp.n_vocab)
    weights.matrix(il, "nextn.shared_head_head", hp.n_embd, hp.n_vocab)
