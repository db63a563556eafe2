"""ROPE, SOFT_MAX and FLASH_ATTN_EXT -> kernel calls. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.opencl.arguments import (
    KernelCall,
    ceil_div,
    floats,
    ints,
    longs,
    pairs,
    params_of,
    strides,
)
from engine.core.ops import (
    MULTI_ROPES,
    ROPE_MROPE,
    ROPE_NORM,
    FlashAttnParams,
    RopeParams,
    SoftMaxParams,
)
from engine.core.rope import rope_factors
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backends.opencl.arguments import PlaceOf
    from engine.backends.opencl.tuning import Tuning
    from engine.core.tensor import Tensor

MAX_HEAD = 256
"""Longest head of flash_attn; longer ones need more scratch in every item."""
MAX_LONG_HEAD = 576
"""Longest head of flash_attn_long: keys of latent attention."""
DOT_STEP, OUT_STEP = 64, 32
"""DOT_STEP and STEP of flash_attn.cl: elements that flash_attn_one takes at a time."""
TILED_TYPES = (TensorType.F32, TensorType.F16)
TILED_FROM = 64
"""Queries from which ggml's CPU multiplies keys of these types in tiles, not key by key."""
ONE_POSITION, IN_RUNS, IN_TURNS = 0, 1, 2
"""How pairs choose among the positions of a token, as rope.cl knows it."""


def encode_rope(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """ROPE."""
    x, positions = node.src[:2]
    has_factors = len(node.src) > 2
    factors = node.src[2] if has_factors else x
    params = params_of(node, RopeParams)
    pair_step, pair_gap = (2, 1) if params.mode == ROPE_NORM else (1, params.n_dims // 2)
    n_tokens = x.ne[2] * x.ne[3]
    heads = min(tuning.rope_heads, x.ne[1])
    args = (
        *pairs(place_of, x, positions, factors, node),
        *ints(*x.ne[:3], n_tokens, heads, int(has_factors)),
        *ints(params.n_dims, params.offset, pair_step, pair_gap),
        *ints(_choice_of_positions(params), *params.sections),
        *longs(positions.nb[0]),
        *strides(x, node),
        *floats(*rope_factors(params)),
    )
    return KernelCall(("rope", ""), "rope", args, (n_tokens, ceil_div(x.ne[1], heads), 1))


def _choice_of_positions(params: RopeParams) -> int:
    if params.mode not in MULTI_ROPES:
        return ONE_POSITION
    return IN_RUNS if params.mode == ROPE_MROPE else IN_TURNS


def encode_soft_max(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """SOFT_MAX."""
    del tuning
    x = node.src[0]
    has_mask = len(node.src) > 1
    mask = node.src[1] if has_mask else x
    has_sinks = len(node.src) > 2
    sinks = node.src[2] if has_sinks else x
    params = params_of(node, SoftMaxParams)
    args = (
        *pairs(place_of, x, mask, sinks, node),
        *ints(*x.ne[:3], x.n_rows, mask.ne[2], mask.ne[3]),
        *ints(int(has_sinks), _full_powers(x.ne[2])),
        *strides(x, mask, node),
        *floats(params.scale, params.max_bias),
    )
    name = f"soft_max_{mask.type.label}" if has_mask else "soft_max"
    return KernelCall(("soft_max", ""), name, args, (x.n_rows, 1, 1))


def encode_flash_attn(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """FLASH_ATTN_EXT."""
    q, k, v = node.src[:3]
    has_mask = len(node.src) > 3
    mask = node.src[3] if has_mask else q
    has_sinks = len(node.src) > 4
    sinks = node.src[4] if has_sinks else q
    params = params_of(node, FlashAttnParams)
    scale = params.scale / params.softcap if params.softcap else params.scale
    is_tiled = k.type is v.type and k.type in TILED_TYPES and q.ne[1] >= TILED_FROM
    args = (
        *pairs(place_of, q, k, v, mask, sinks, node),
        *ints(k.ne[0], v.ne[0], q.ne[1], k.ne[1]),
        *ints(q.ne[2] // k.ne[2], q.ne[2] // v.ne[2], q.ne[3] // k.ne[3], q.ne[3] // v.ne[3]),
        *ints(int(has_mask), mask.ne[2], mask.ne[3]),
        *ints(int(has_sinks), _full_powers(q.ne[2]), int(not is_tiled)),
        *strides(q, k, v, mask, node),
        *floats(scale, params.softcap, params.max_bias),
    )
    name = "flash_attn_one" if _is_one(q, k, v, tuning) else "flash_attn"
    items = (ceil_div(q.ne[1], tuning.queries), q.ne[2], q.ne[3])
    family = "flash_attn" if max(k.ne[0], v.ne[0]) <= MAX_HEAD else "flash_attn_long"
    return KernelCall((family, f"{k.type.label} {v.type.label}"), name, args, items)


def _is_one(q: Tensor, k: Tensor, v: Tensor, tuning: Tuning) -> bool:
    """Whether a single query comes to an item that is meant for several."""
    heads_fit = k.ne[0] % DOT_STEP == 0 and v.ne[0] % OUT_STEP == 0
    return q.ne[1] == 1 < tuning.queries and heads_fit


def _full_powers(n_heads: int) -> int:
    """Heads whose alibi slope is a whole power (slope.cl): the largest power of two."""
    return 1 << (n_heads.bit_length() - 1)
