"""mamba: selective state spaces in every layer; no attention, no feed-forward, no positions.

Source: llama.cpp src/models/mamba.cpp; ARCH.md 5.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NORM
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.head import finish_with_logits
from engine.model.blocks.inputs import embed_tokens, keep_outputs
from engine.model.blocks.mamba import mamba, mamba_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.recurrent import state_rows
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import read_common
from engine.model.hparams_recurrent import with_recurrence

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.recurrent import StateRows
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NORM, needs_ff=False, attends=False)
    hp = with_recurrence(keys, hp, [True] * hp.n_layer, has_groups=False)
    assert hp.recurrence is not None
    if hp.recurrence.d_inner != 2 * hp.n_embd:
        allowed = f"{2 * hp.n_embd}, twice the embedding_length"
        raise keys.wrong("ssm.inner_size", hp.recurrence.d_inner, allowed)
    return hp


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il in range(hp.n_layer):
        table.norm(il, "attn_norm", hp.n_embd)
        mamba_weights(table, hp, il)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embed_tokens(ctx)
    layer = partial(_layer, rows=state_rows(ctx))
    return finish_with_logits(ctx, run_layers(ctx, x, layer))


def _layer(ctx: GraphContext, x: Tensor, il: int, rows: StateRows) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    scanned, x = keep_outputs(ctx, il, mamba(ctx, normed, rows, il), x)
    return ctx.named(ops.add(scanned, x), "l_out", il)
