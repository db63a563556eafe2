"""What ggml keeps of an operation's parameters, in the 16 words `op_params`. Source: ggml.c.

    pack(tensor, numbers)      # [2, 0]: a MUL_MAT asks for precision 2

Floats stand in a word as their bits. The axes of PERMUTE are left out: nobody reads them, since
shape and strides say the same.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from engine.core.ops import (
    ArgsortParams,
    ClampParams,
    ConcatParams,
    FillParams,
    FlashAttnParams,
    GluParams,
    MatmulParams,
    NormParams,
    Op,
    PadParams,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryParams,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.backends.ggml.base import Numbers
    from engine.core.tensor import Tensor

Words = list[int]

KEPT_STATES = 1
"""How many of the last states SSM_SCAN and GATED_DELTA_NET give back: the newest."""


def pack(tensor: Tensor, numbers: Numbers) -> Words:
    """The words of a tensor's operation; those that follow are 0."""
    params = tensor.params
    if isinstance(params, UnaryParams):
        return [numbers.unary[params.kind]]
    if isinstance(params, GluParams):
        is_swapped = 0
        return [numbers.glu[params.kind], is_swapped, _bits(params.alpha), _bits(params.limit)]
    if tensor.op is Op.VIEW:
        return _view(tensor)
    if tensor.op in (Op.SSM_SCAN, Op.GATED_DELTA_NET):
        return [KEPT_STATES]
    return [] if params is None else _PACKERS[type(params)](params)


def _bits(*values: float) -> int:
    """A float's bits as a whole number of 32 bits with a sign."""
    return _words(*values)[0]


def _words(*values: float) -> Words:
    count = len(values)
    return list(struct.unpack(f"<{count}i", struct.pack(f"<{count}f", *values)))


def _view(tensor: Tensor) -> Words:
    """The offset in the source, which may be a view itself, as 64 bits."""
    offset = tensor.view_offs - tensor.src[0].view_offs
    return list(struct.unpack("<2i", struct.pack("<q", offset)))


def _pad(params: PadParams) -> Words:
    """Elements before and after, dimension by dimension; the last word: not in a circle."""
    return [word for n_after in params.n_after for word in (0, n_after)] + [0]


def _rope(params: RopeParams) -> Words:
    n_past, n_ctx = 0, 0
    floats: Sequence[float] = (
        params.freq_base, params.freq_scale, params.ext_factor, params.attn_factor,
        params.beta_fast, params.beta_slow,
    )  # fmt: skip
    return [
        n_past, params.n_dims, params.mode, n_ctx, params.n_ctx_orig, *_words(*floats),
        *params.sections, params.offset,
    ]  # fmt: skip


def _flash_attn(params: FlashAttnParams) -> Words:
    return [*_words(params.scale, params.max_bias, params.softcap), int(params.precision)]


_PACKERS: dict[type, Callable[[Any], Words]] = {
    NormParams: lambda p: _words(p.eps),
    ScaleParams: lambda p: _words(p.scale, p.bias),
    ClampParams: lambda p: _words(p.low, p.high),
    FillParams: lambda p: _words(p.value),
    ConcatParams: lambda p: [p.dim],
    PadParams: _pad,
    ArgsortParams: lambda p: [int(p.descending)],
    MatmulParams: lambda p: [int(p.precision)],
    SoftMaxParams: lambda p: _words(p.scale, p.max_bias),
    FlashAttnParams: _flash_attn,
    RopeParams: _rope,
}
