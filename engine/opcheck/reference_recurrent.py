"""Operations that carry a state from token to token, in plain numpy; as reference.py.

Arrays have numpy's order, so a tensor [ne0, ne1, ne2, ne3] is an array (ne3, ne2, ne1, ne0).
Floats are computed in float64 and given back as float32. Source: ARCH.md 5.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]

STEEP = 20.0
"""Above it softplus(x) is x, in single precision."""


def _softplus(x: Floats) -> Floats:
    """Log(1 + exp(x))."""
    wide = x.astype(np.float64)
    bent = np.log1p(np.exp(np.minimum(wide, STEEP)))
    return np.where(wide > STEEP, wide, bent).astype(np.float32)


def ssm_conv(x: Floats, weight: Floats) -> Floats:
    """(1, s, t, c) of x (1, s, c, d_conv - 1 + t) and weight (1, 1, c, d_conv)."""
    d_conv = weight.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), d_conv, axis=-1)
    y = (windows * weight[0, 0].astype(np.float64)[:, None, :]).sum(-1)
    return np.asarray(y.swapaxes(-1, -2)[None], np.float32)


def ssm_scan(
    state: Floats, x: Floats, dt: Floats, a: Floats, b: Floats, c: Floats, ids: Integers
) -> Floats:
    """Flat: outputs like x (s, t, h, d), then the new states (s, h, d, d_state).

    `state` (rows, h, d, d_state), dt (1, s, t, h), a (1, 1, h, 1 or d_state), b and c
    (s, t, g, d_state), `ids` with a row a sequence.
    """
    n_seqs, n_tokens, n_head, _ = x.shape
    group = np.arange(n_head) // (n_head // b.shape[2])
    decays = a[0, 0].astype(np.float64)[:, None, :]
    states = state[ids.reshape(-1)[:n_seqs].astype(np.int64)].astype(np.float64)
    y = np.zeros(x.shape)
    for i_seq in range(n_seqs):
        s = states[i_seq]
        for t in range(n_tokens):
            step = _softplus(dt[0, i_seq, t]).astype(np.float64)[:, None, None]
            given = x[i_seq, t].astype(np.float64)[:, :, None] * step
            s = s * np.exp(step * decays) + given * b[i_seq, t, group][:, None, :]
            y[i_seq, t] = (s * c[i_seq, t, group].astype(np.float64)[:, None, :]).sum(-1)
        states[i_seq] = s
    return np.concatenate([y.reshape(-1), states.reshape(-1)]).astype(np.float32)


def gated_delta_net(
    q: Floats, k: Floats, v: Floats, gate: Floats, beta: Floats, state: Floats
) -> Floats:
    """(1, 1, s * t + s * d, h * d): a row of outputs a token, then the new states.

    q and k (s, t, hk, d), v (s, t, h, d), gate (s, t, h, 1), beta (s, t, h, 1), `state`
    (s, h, d, d), whose row j and column i hold S[i, j].
    """
    n_seqs, n_tokens, n_head, d = v.shape
    key_head = np.arange(n_head) % k.shape[2]
    states = state.astype(np.float64)
    out = np.zeros(v.shape)
    for i_seq in range(n_seqs):
        s = states[i_seq]
        for t in range(n_tokens):
            key = k[i_seq, t, key_head].astype(np.float64)
            query = q[i_seq, t, key_head].astype(np.float64)
            s = s * np.exp(gate[i_seq, t].astype(np.float64))[:, :, None]
            known = np.einsum("hji,hi->hj", s, key)
            learnt = (v[i_seq, t] - known) * beta[i_seq, t]
            s = s + learnt[:, :, None] * key[:, None, :]
            out[i_seq, t] = np.einsum("hji,hi->hj", s, query) / math.sqrt(d)
        states[i_seq] = s
    rows = np.concatenate([out.reshape(-1), states.reshape(-1)])
    return rows.reshape(1, 1, -1, n_head * d).astype(np.float32)
