"""The shard of every weight and cache of a joined device, by role. Pure.

Products of rows (attn_q, attn_k, attn_v, ffn_up, ffn_gate, output) share the rows of their matrix,
axis 1; those that follow (attn_output, ffn_down) the columns, axis 0, which are the same channels.
Caches share whole heads of K and V, with all queries that look at them. Norms, biases, routers and
whatever is not named here each member has whole; a graph takes its part of them where it needs one.
What cannot be divided, such as a single head of K, each member has whole, with all of its layer's
attention. Source: llama_meta_device_get_split_state (src/llama-model.cpp).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.backend.alloc import padded_bytes, part_bytes
from engine.core.shards import MIRRORED, MemberShare, Shard, shard_along, share_out
from engine.model.meta_device import META
from engine.model.placement import device_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import DeviceFacts
    from engine.core.tensor import Tensor
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.kv_cache import KvCache
    from engine.model.weights import WeightSet

ROWS_UNIT = 32
"""Rows of a matrix that stay together: no kernel gains from fewer."""

FEED_FORWARDS = (
    (("ffn_up", "ffn_gate"), "ffn_down"),
    (("ffn_up_exps", "ffn_gate_exps"), "ffn_down_exps"),
    (("ffn_up_shexp", "ffn_gate_shexp"), "ffn_down_shexp"),
)
"""Weights that make the channels of a feed-forward, and the one that takes them."""

SEEN_TOGETHER = ("attn_qkv", "attn_q_a", "attn_kv_a_mqa", "attn_kv_b", "ssm_in", "ssm_out")
"""Roles of attention whose rows are not heads one behind another; such a layer is not divided."""


def member_shares(
    members: Sequence[DeviceFacts], cpu: DeviceFacts, wanted: Sequence[float]
) -> tuple[float, ...]:
    """What each member is to have of a tensor, as fractions of 1, by the rule for layers.

    `wanted` are those of -ts. Without them llama.cpp shares equally here (llama-model.cpp:853):
    then the device with the least memory bounds the model, where shares of free memory fill all.
    """
    weights = device_weights(members, cpu, wanted).tolist()
    return tuple(weight / sum(weights) for weight in weights)


def plan_shards(
    weights: WeightSet,
    cache: KvCache,
    hparams: Hparams,
    shares: Sequence[float],
) -> Mapping[Tensor, Shard]:
    """The shards of tensors that are divided; each member has every other one whole."""
    planner = _ShardPlanner(weights, cache, hparams, tuple(shares))
    if len(shares) > 1:
        planner.plan()
    return {
        tensor: shard
        for tensor, shard in planner.shards.items()
        if not shard.is_mirrored and tensor.home is not None and tensor.home.buft.name == META
    }


def held_shares(
    members: Sequence[DeviceFacts],
    shares: Sequence[float],
    tensors: Sequence[Tensor],
    shards: Mapping[Tensor, Shard],
) -> tuple[MemberShare, ...]:
    """What each member holds of `tensors`, against what it was to have."""
    whole = [x for x in tensors if x not in shards]
    whole_bytes = [sum(padded_bytes(facts.buft, x) for x in whole) for facts in members]
    held_bytes = [
        n_bytes + sum(part_bytes(facts.buft, x, shards[x], i) for x in tensors if x in shards)
        for i, (facts, n_bytes) in enumerate(zip(members, whole_bytes, strict=True))
    ]
    total = max(sum(held_bytes), 1)
    return tuple(
        MemberShare(
            facts.name, share, held_bytes[i], whole_bytes[i], held_bytes[i] / total,
            free_bytes=facts.memory_free,
        )
        for i, (facts, share) in enumerate(zip(members, shares, strict=True))
    )  # fmt: skip


@dataclass(slots=True)
class _ShardPlanner:
    weights: WeightSet
    cache: KvCache
    hparams: Hparams
    shares: tuple[float, ...]
    shards: dict[Tensor, Shard] = field(default_factory=dict)

    def plan(self) -> None:
        for il, layer in enumerate(self.hparams.layers):
            self._attention(il, layer)
            for makers, taker in FEED_FORWARDS:
                self._feed_forward(il, makers, taker)
        output = self._weight("output")
        if output is not None and self._has_one_role(output):
            sizes = self._sizes(output.ne[1], ROWS_UNIT, self.hparams.n_layer)
            self._set(output, 1, sizes)

    def _attention(self, il: int, layer: LayerHparams) -> None:
        """Share out whole heads of K and V, each with the heads of Q that look at it."""
        names = ("attn_q", "attn_k", "attn_v", "attn_output")
        q, k, v, output = (self._weight(name, il) for name in names)
        if q is None or output is None or not self._has_plain_heads(il, layer, (q, k, v, output)):
            return
        queries = layer.n_head // layer.n_head_kv
        taken = queries * layer.n_embd_head_v
        # Heads that together end where a block of the output's rows does.
        unit = math.lcm(taken, output.type.block_elems) // taken
        # Layers that read the keys of an earlier one are divided as that one is.
        heads = self._sizes(layer.n_head_kv, unit, self.hparams.cache_layer(il))
        if not heads:
            return
        self._set(q, 1, [n * queries * layer.n_embd_head_k for n in heads])
        self._set(output, 0, [n * taken for n in heads])
        for tensor, axis in ((k, 1), (self.cache.keys.get(il), 0)):
            self._set(tensor, axis, [n * layer.n_embd_head_k for n in heads])
        for tensor, axis in ((v, 1), (self.cache.values.get(il), 0)):
            self._set(tensor, axis, [n * layer.n_embd_head_v for n in heads])

    def _has_plain_heads(
        self, il: int, layer: LayerHparams, weights: Sequence[Tensor | None]
    ) -> bool:
        """Whether rows of the weights and of the caches are heads, one behind another."""
        if not layer.attends or layer.is_recurrent or self.hparams.latent is not None:
            return False
        if any(self._weight(name, il) is not None for name in SEEN_TOGETHER):
            return False
        q, k, v, output = weights
        k_widths = (k and k.ne[1], self._width(self.cache.keys.get(il)))
        v_widths = (v and v.ne[1], self._width(self.cache.values.get(il)))
        return (
            layer.n_head_kv > 0
            and layer.n_head % layer.n_head_kv == 0
            and q is not None
            and q.ne[1] == layer.n_embd_q
            and output is not None
            and output.ne[0] == layer.n_embd_attended
            and all(width in (None, layer.n_embd_k) for width in k_widths)
            and all(width in (None, layer.n_embd_v) for width in v_widths)
        )

    @staticmethod
    def _width(cache: Tensor | None) -> int | None:
        return None if cache is None else cache.ne[0]

    def _feed_forward(self, il: int, makers: Sequence[str], taker: str) -> None:
        """Share out channels; a matrix that holds two kinds of channels is not divided."""
        down = self._weight(taker, il)
        made = [tensor for name in makers if (tensor := self._weight(name, il)) is not None]
        if down is None or not made or any(tensor.ne[1] != down.ne[0] for tensor in made):
            return
        unit = math.lcm(down.type.block_elems, ROWS_UNIT)
        sizes = self._sizes(down.ne[0], unit, il)
        if not sizes:
            return
        self._set(down, 0, sizes)
        for tensor in made:
            self._set(tensor, 1, sizes)

    def _weight(self, name: str, il: int = -1) -> Tensor | None:
        prefix = "" if il < 0 else f"blk.{il}."
        return self.weights.tensors.get(f"{prefix}{name}.weight")

    def _has_one_role(self, tensor: Tensor) -> bool:
        return sum(other is tensor for other in self.weights.tensors.values()) == 1

    def _sizes(self, n_elems: int, unit: int, il: int) -> tuple[int, ...]:
        """Elements of each member; none where only one could have any although several should."""
        n_sharers = sum(share > 0 for share in self.shares)
        if n_sharers > 1 and n_elems < 2 * unit:
            return ()
        return share_out(n_elems, unit, self.shares, rotation=il % len(self.shares))

    def _set(self, tensor: Tensor | None, axis: int, sizes: Sequence[int]) -> None:
        if tensor is None or not sizes:
            return
        shard = shard_along(axis, sizes)
        if self.shards.setdefault(tensor, shard) != shard:
            # Layers that share it would divide it in different ways.
            self.shards[tensor] = MIRRORED
