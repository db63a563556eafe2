"""Operations and the parameters they carry. The names are ggml's."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Op(enum.StrEnum):
    """An operation; the value is the name ggml prints."""

    NONE = "NONE"
    ADD = "ADD"
    ADD_ID = "ADD_ID"
    SUB = "SUB"
    MUL = "MUL"
    DIV = "DIV"
    SCALE = "SCALE"
    CLAMP = "CLAMP"
    FILL = "FILL"
    CONCAT = "CONCAT"
    REPEAT = "REPEAT"
    CONT = "CONT"
    CPY = "CPY"
    PAD = "PAD"
    RESHAPE = "RESHAPE"
    VIEW = "VIEW"
    PERMUTE = "PERMUTE"
    TRANSPOSE = "TRANSPOSE"
    GET_ROWS = "GET_ROWS"
    SET_ROWS = "SET_ROWS"
    NORM = "NORM"
    RMS_NORM = "RMS_NORM"
    MUL_MAT = "MUL_MAT"
    MUL_MAT_ID = "MUL_MAT_ID"
    SOFT_MAX = "SOFT_MAX"
    ROPE = "ROPE"
    FLASH_ATTN_EXT = "FLASH_ATTN_EXT"
    ARGSORT = "ARGSORT"
    SUM_ROWS = "SUM_ROWS"
    SSM_CONV = "SSM_CONV"
    SSM_SCAN = "SSM_SCAN"
    GATED_DELTA_NET = "GATED_DELTA_NET"
    UNARY = "UNARY"
    GLU = "GLU"


class UnaryOp(enum.StrEnum):
    """What a UNARY node computes."""

    SILU = "SILU"
    GELU = "GELU"
    TANH = "TANH"
    SIGMOID = "SIGMOID"
    SOFTPLUS = "SOFTPLUS"


class GluOp(enum.StrEnum):
    """What a GLU node computes: SWIGLU is silu(gate) * up, GEGLU gelu(gate) * up.

    SWIGLU_OAI is gate * sigmoid(alpha * gate) * (up + 1), gate at most the limit, up within it.
    """

    SWIGLU = "SWIGLU"
    GEGLU = "GEGLU"
    SWIGLU_OAI = "SWIGLU_OAI"


VIEW_OPS = frozenset({Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE})
"""Operations that compute nothing; the scheduler looks through them."""

EMPTY_OPS = VIEW_OPS | {Op.NONE}
"""Operations that a backend skips."""

INPLACE_OPS = frozenset(
    {Op.FILL, Op.SCALE, Op.CLAMP, Op.ADD, Op.ADD_ID, Op.SUB, Op.MUL, Op.DIV, Op.UNARY, Op.ROPE}
    | {Op.RMS_NORM, Op.SOFT_MAX}
)
"""Operations whose result may take the memory of a source (SCHED.md 14.4)."""


class Precision(enum.IntEnum):
    """The accumulation a matmul or an attention asks for; the value is ggml's."""

    DEFAULT = 0
    F32 = 10


@dataclass(frozen=True, slots=True)
class NormParams:
    """RMS_NORM: y = x / sqrt(mean(x^2) + eps) over ne[0]; NORM takes the mean of x off first."""

    eps: float


@dataclass(frozen=True, slots=True)
class ScaleParams:
    """SCALE: y = x * scale + bias."""

    scale: float
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class ClampParams:
    """CLAMP: y = min(max(x, low), high)."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FillParams:
    """FILL: y = value."""

    value: float


@dataclass(frozen=True, slots=True)
class ConcatParams:
    """CONCAT: the dimension along which the second source follows the first."""

    dim: int


@dataclass(frozen=True, slots=True)
class PadParams:
    """PAD: zeros after each dimension's last element."""

    n_after: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ArgsortParams:
    """ARGSORT: the order of the indices."""

    descending: bool = False


@dataclass(frozen=True, slots=True)
class MatmulParams:
    """MUL_MAT and MUL_MAT_ID."""

    precision: Precision = Precision.DEFAULT


@dataclass(frozen=True, slots=True)
class SoftMaxParams:
    """SOFT_MAX: softmax over ne[0] of x * scale + slope * mask.

    A third source, the sinks f32 [n_head], is one more logit a head that only takes its share.
    """

    scale: float = 1.0
    max_bias: float = 0.0


@dataclass(frozen=True, slots=True)
class FlashAttnParams:
    """FLASH_ATTN_EXT of q [D, T, H], k [D, n_kv, Hk], v [D, n_kv, Hk], mask f16 [n_kv, T].

    A fifth source are the sinks of SOFT_MAX.
    """

    scale: float = 1.0
    max_bias: float = 0.0
    softcap: float = 0.0
    precision: Precision = Precision.F32


ROPE_NORM, ROPE_NEOX, ROPE_MROPE, ROPE_IMROPE = 0, 2, 8, 40
"""Modes of ROPE: pairs (2j, 2j+1), or pairs (j, j + n_dims/2).

The last two pair like the second; each pair takes one of four positions, by its section.
"""

MULTI_ROPES = frozenset({ROPE_MROPE, ROPE_IMROPE})
"""Modes whose positions are four times as many as tokens."""


@dataclass(frozen=True, slots=True)
class RopeParams:
    """ROPE of the first n_dims elements of each head. Source: ARCH.md 1.9."""

    n_dims: int
    mode: int = ROPE_NORM
    n_ctx_orig: int = 0
    freq_base: float = 10000.0
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    sections: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Pairs of each kind of position, in modes that have several."""
    offset: int = 0
    """Elements of each head before the first one that is rotated."""


@dataclass(frozen=True, slots=True)
class UnaryParams:
    """UNARY: which function."""

    kind: UnaryOp


@dataclass(frozen=True, slots=True)
class GluParams:
    """GLU: which function; with two sources src0 is the gate, with one its first half is.

    `alpha` and `limit` are those of SWIGLU_OAI.
    """

    kind: GluOp
    alpha: float = 0.0
    limit: float = 0.0


OpParams = (
    NormParams
    | ScaleParams
    | ClampParams
    | FillParams
    | ConcatParams
    | PadParams
    | ArgsortParams
    | MatmulParams
    | SoftMaxParams
    | FlashAttnParams
    | RopeParams
    | UnaryParams
    | GluParams
    | None
)
