"""rope_factors: what ROPE needs of its parameters, beside the position. Source: ARCH.md 1.9."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.core.ops import RopeParams


class RopeFactors(NamedTuple):
    """Numbers that are the same for every pair of elements and every position.

    `theta_scale` is the step from the angle of a pair to the next one's. Pairs before `ramp_begin`
    turn by the position itself, those past `ramp_end` by freq_scale times it (YaRN). `magnitude`
    multiplies the rotated values.
    """

    theta_scale: float
    freq_scale: float
    ext_factor: float
    magnitude: float
    ramp_begin: float
    ramp_end: float


def rope_factors(params: RopeParams) -> RopeFactors:
    """The factors of `params`; without YaRN the ramp is not used."""
    theta_scale = params.freq_base ** (-2.0 / params.n_dims)
    if params.ext_factor == 0.0:
        return RopeFactors(theta_scale, params.freq_scale, 0.0, params.attn_factor, 0.0, 0.0)
    return RopeFactors(
        theta_scale,
        params.freq_scale,
        params.ext_factor,
        params.attn_factor * (1.0 + 0.1 * math.log(1.0 / params.freq_scale)),
        max(0.0, math.floor(_pair_of(params, params.beta_fast))),
        min(params.n_dims - 1.0, math.ceil(_pair_of(params, params.beta_slow))),
    )


def _pair_of(params: RopeParams, n_rotations: float) -> float:
    """The pair that turns so often over the context the model was trained with."""
    length = params.n_ctx_orig / (n_rotations * 2.0 * math.pi)
    return params.n_dims * math.log(length) / (2.0 * math.log(params.freq_base))
