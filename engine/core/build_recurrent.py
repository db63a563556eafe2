"""Shape rules of what carries a state from token to token. Source: ARCH.md 5."""

from __future__ import annotations

from engine.core.build import derived_name, view_of
from engine.core.ops import Op, ScaleParams
from engine.core.tensor import Tensor
from engine.core.types import TensorType


def scale_inplace(x: Tensor, factor: float) -> Tensor:
    """A view of x after it was multiplied by factor."""
    result = view_of(x, Op.SCALE, (x,))
    result.params = ScaleParams(factor)
    result.name = derived_name(x, "(view)")
    return result


def ssm_conv(x: Tensor, weight: Tensor) -> Tensor:
    """f32 [c, t, s]: each channel's convolution of x [d_conv - 1 + t, c, s] and [d_conv, c]."""
    assert weight.ne[1] == x.ne[1], (x, weight)
    n_tokens = x.ne[0] - weight.ne[0] + 1
    return Tensor(TensorType.F32, (x.ne[1], n_tokens, x.ne[2], 1), op=Op.SSM_CONV, src=(x, weight))


def ssm_scan(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ids: Tensor
) -> Tensor:
    """f32, flat: the outputs, shaped as x, then the new states.

    `state` [d_state, d, h, rows], of which `ids` i32 [s] picks one a sequence; x [d, h, t, s],
    dt [h, t, s], a [d_state or 1, h], b and c [d_state, g, t, s].
    """
    assert state.ne[1:3] == x.ne[:2], (state, x)
    assert dt.ne[:3] == x.ne[1:], (dt, x)
    assert b.ne == c.ne, (b, c)
    n_states = state.ne[0] * state.ne[1] * state.ne[2] * ids.ne[0]
    src = (state, x, dt, a, b, c, ids)
    return Tensor(TensorType.F32, (x.n_elems + n_states, 1, 1, 1), op=Op.SSM_SCAN, src=src)


def gated_delta_net(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """f32 [d * h, t * s + d * s]: a row of outputs a token, then the new states.

    q and k [d, hk, t, s], v [d, h, t, s], gate and beta [1, h, t, s], `state` [d, d, h, s].
    """
    d, n_head, n_tokens, n_seqs = v.ne
    assert state.ne == (d, d, n_head, n_seqs), (state, v)
    assert gate.ne == beta.ne == (1, n_head, n_tokens, n_seqs), (gate, beta, v)
    ne = (d * n_head, (n_tokens + d) * n_seqs, 1, 1)
    return Tensor(TensorType.F32, ne, op=Op.GATED_DELTA_NET, src=(q, k, v, gate, beta, state))
