"""The built-in cases: every operation that graphs of the architectures use.

    case for case: a type x a shape that matters: one column, few, a prompt's many; lengths that
    are no multiple of anything; sources that repeat, have gaps, are permuted or transposed

Products and attention are in built_in_products.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build, build_recurrent
from engine.core.ops import (
    ROPE_IMROPE,
    ROPE_MROPE,
    ROPE_NEOX,
    ROPE_NORM,
    GluOp,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.quants import READABLE, WRITABLE
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.built_in_products import product_cases
from engine.opcheck.cases import Case, CountedCase, case_of

if TYPE_CHECKING:
    from collections.abc import Iterator

F32, F16, BF16, I32, I64 = (
    TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.I32, TensorType.I64,
)  # fmt: skip
FLOATS = (F32, F16, BF16)
SHAPES = ((64, 1), (33, 7), (5, 7, 3, 2), (1024, 17))
"""Of what is done element by element or row by row."""


def built_in_cases() -> tuple[CountedCase, ...]:
    """All of them; what is alike comes once."""
    groups = (
        _binary, _elementwise, _gated, _norms, _copies, _moves, _tables, _soft_max, _rope,
        _recurrent, product_cases,
    )  # fmt: skip
    cases = dict.fromkeys(case for group in groups for case in group())
    return tuple(CountedCase(case) for case in cases)


def leaf(kind: TensorType, *ne: int) -> Tensor:
    """A tensor without gaps."""
    return Tensor(kind, shape4(*ne))


def gapped(kind: TensorType, *ne: int) -> Tensor:
    """Rows with a gap of a block or more behind each, at an offset."""
    ne0, ne1, ne2, ne3 = shape4(*ne)
    extra = max(kind.block_elems, 4)
    wide = leaf(kind, ne0 + 2 * extra, ne1, ne2, ne3)
    offset = kind.row_bytes(extra)
    return build.view(wide, (ne0, ne1, ne2, ne3), wide.nb[1:], offset)


def heads(kind: TensorType, d: int, n_heads: int, n_tokens: int) -> Tensor:
    """[d, n_tokens, n_heads], as attention sees what was written token by token."""
    return build.permute(leaf(kind, d, n_heads, n_tokens), (0, 2, 1, 3))


def _binary() -> Iterator[Case]:
    for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
        for ne in SHAPES:
            yield case_of(build.binary(op, leaf(F32, *ne), leaf(F32, *ne)))
        x = leaf(F32, 64, 5, 6, 2)
        for small in ((64,), (1,), (64, 5), (1, 5), (64, 1, 6), (16, 5, 3, 2), (1, 1, 1, 2)):
            yield case_of(build.binary(op, x, leaf(F32, *small)), "the second repeats")
        yield case_of(build.binary(op, gapped(F32, 36, 5, 3), gapped(F32, 36, 5, 3)))
        yield case_of(build.binary(op, gapped(F32, 36, 5, 3), leaf(F32, 36)))
        yield case_of(build.binary(op, heads(F32, 32, 3, 5), heads(F32, 32, 3, 5)))
    for n_used, n_tokens in ((2, 1), (4, 9)):
        ids = build.view(leaf(I32, 8, n_tokens), (n_used, n_tokens), (32,))
        x, table = leaf(F32, 96, n_used, n_tokens), leaf(F32, 96, 8)
        yield case_of(build.add_id(x, table, leaf(I32, n_used, n_tokens)))
        yield case_of(build.add_id(x, table, ids))


def _elementwise() -> Iterator[Case]:
    for ne in SHAPES:
        x = leaf(F32, *ne)
        yield case_of(build.scale(x, 0.125))
        yield case_of(build.scale(x, -3.0, 0.5))
        yield case_of(build_recurrent.scale_inplace(x, 0.5), "in place")
        yield case_of(build.clamp(x, -0.5, 0.25))
        yield case_of(build.fill(x, -1.5))
        for kind in UnaryOp:
            yield case_of(build.unary(x, kind))
    for kind in UnaryOp:
        yield case_of(build.unary(gapped(F32, 36, 5, 3), kind))
    yield case_of(build.clamp(gapped(F32, 36, 5, 3), 0.0, 0.5))
    for ne in ((0, 5), (64, 0)):
        yield case_of(build.scale(leaf(F32, *ne), 2.0), "empty")


def _gated() -> Iterator[Case]:
    for kind in GluOp:
        alpha, limit = (1.702, 7.0) if kind is GluOp.SWIGLU_OAI else (0.0, 0.0)
        pairs = [(leaf(F32, *ne), leaf(F32, *ne)) for ne in SHAPES]
        for gate, up in (*pairs, (gapped(F32, 48, 5), gapped(F32, 48, 5))):
            yield case_of(build.glu_split(gate, up, kind, alpha=alpha, limit=limit))
        if kind is not GluOp.SWIGLU_OAI:
            yield case_of(build.glu(leaf(F32, 96, 5), kind), "both in one")
            yield case_of(build.glu(leaf(F32, 2048, 17), kind), "both in one")
            yield case_of(build.glu(leaf(F32, 66, 3, 2), kind), "both in one")


def _norms() -> Iterator[Case]:
    for ne0 in (5, 64, 576, 1025, 4096):
        for ne in ((ne0, 1), (ne0, 5, 3)):
            yield case_of(build.rms_norm(leaf(F32, *ne), 1e-5))
            yield case_of(build.norm(leaf(F32, *ne), 1e-5))
            yield case_of(build.sum_rows(leaf(F32, *ne)))
    for x in (gapped(F32, 64, 5, 3), heads(F32, 64, 3, 5)):
        yield case_of(build.rms_norm(x, 1e-6))
        yield case_of(build.norm(x, 1e-6))
        yield case_of(build.sum_rows(x))


def _copies() -> Iterator[Case]:
    for source in FLOATS:
        for target in FLOATS:
            for x in (leaf(source, 33, 7), gapped(source, 33, 7, 2), heads(source, 24, 3, 5)):
                yield case_of(build.cast(x, target), "a cast")
            yield case_of(build.cast(build.transpose(leaf(source, 17, 9)), target), "a cast")
            into = build.view(leaf(target, 96, 9), (64, 5), (96 * target.block_bytes,), 64)
            yield case_of(build.cpy(leaf(source, 64, 5), into))
        for kind in sorted(WRITABLE - set(FLOATS)):
            yield case_of(build.cast(leaf(source, 96, 5), kind), "a cast")
            yield case_of(build.cpy(leaf(source, 64, 5), leaf(kind, 64, 5)))
    for kind in sorted(READABLE - set(FLOATS)):
        yield case_of(build.cast(leaf(kind, 2 * 256, 5), F32), "a cast")
        yield case_of(build.cpy(gapped(kind, 256, 3, 2), leaf(kind, 256, 3, 2)))
    for kind in (*FLOATS, I32):
        yield case_of(build.cont(heads(kind, 40, 3, 7)))
        yield case_of(build.cont(build.transpose(leaf(kind, 33, 20, 3))))
        yield case_of(build.cont(gapped(kind, 20, 6, 2), shape4(240)), "another shape")
        yield case_of(build.cont(build.permute(leaf(kind, 6, 5, 4, 3), (3, 1, 0, 2))))
        yield case_of(build.cont(build.transpose(leaf(kind, 512, 130))))


def _moves() -> Iterator[Case]:
    for kind in (F32, I32):
        for dim in range(4):
            other = [12, 5, 3, 2]
            other[dim] = 4
            yield case_of(build.concat(leaf(kind, 12, 5, 3, 2), leaf(kind, *other), dim))
        behind = build.transpose(leaf(kind, 24, 7))
        yield case_of(build.concat(leaf(kind, 3, 24), behind, 0))
        for ne in ((20, 5, 4, 2), (10, 15, 4, 2), (10, 5, 8, 2), (10, 5, 4, 6), (40, 5, 12, 2)):
            yield case_of(build.repeat(leaf(kind, 10, 5, 4, 2), *ne))
        yield case_of(build.repeat(heads(kind, 16, 2, 3), 16, 3, 8))
    for n_after in (1, 31):
        yield case_of(build.pad(leaf(F32, 33, 5, 2), n_after))
        yield case_of(build.pad(gapped(F32, 32, 5), n_after))
    for descending in (False, True):
        for row, *others in ((2, 3), (8, 1), (60, 17), (128, 2, 3), (1000, 2)):
            yield case_of(build.argsort(leaf(F32, row, *others), descending=descending))


def _tables() -> Iterator[Case]:
    for kind in sorted(READABLE):
        for n_rows in (1, 9):
            yield case_of(build.get_rows(leaf(kind, 512, 13), leaf(I32, n_rows)))
        yield case_of(build.get_rows(leaf(kind, 256, 6, 3, 2), leaf(I32, 4, 3, 2)))
    for kind in (F32, F16, I32):
        yield case_of(build.get_rows(leaf(kind, 1, 40, 5), leaf(I32, 4, 5)), "rows of one")
        yield case_of(build.get_rows(gapped(kind, 33, 8), leaf(I32, 5)))
    for kind in sorted(WRITABLE):
        for index in (I64, I32):
            yield case_of(build.set_rows(leaf(kind, 128, 40), leaf(F32, 128, 1), leaf(index, 1)))
            yield case_of(build.set_rows(leaf(kind, 96, 40), leaf(F32, 96, 17), leaf(index, 17)))
        many = leaf(kind, 64, 24, 3, 2), leaf(F32, 64, 5, 3, 2)
        yield case_of(build.set_rows(*many, leaf(I64, 5, 3, 2)))
        yield case_of(build.set_rows(*many, leaf(I64, 5)), "rows for all alike")
        yield case_of(build.set_rows(leaf(kind, 64, 24), gapped(F32, 64, 5), leaf(I64, 5)))
        yield case_of(build.set_rows(gapped(kind, 64, 24), leaf(F32, 64, 5), leaf(I64, 5)))
    for kind in FLOATS:
        yield case_of(build.set_rows(leaf(kind, 1, 500), leaf(F32, 1, 96), leaf(I64, 96)), "of one")
        yield case_of(build.set_rows(leaf(kind, 33, 9), leaf(F32, 33, 4), leaf(I64, 4)))


def _soft_max() -> Iterator[Case]:
    for n_kv, t, n_heads in ((256, 1, 6), (37, 5, 6), (288, 35, 3), (1024, 2, 2)):
        x = leaf(F32, n_kv, t, n_heads)
        yield case_of(build.soft_max(x, None, SoftMaxParams(0.125)))
        for kind in (F32, F16):
            mask = leaf(kind, n_kv, t)
            for params in (SoftMaxParams(0.125), SoftMaxParams(1.0, max_bias=8.0)):
                yield case_of(build.soft_max(x, mask, params))
            sinks = leaf(F32, n_heads)
            yield case_of(build.soft_max(x, mask, SoftMaxParams(0.125), sinks=sinks))
    x, params = leaf(F32, 40, 3, 4, 2), SoftMaxParams(0.5)
    yield case_of(build.soft_max(x, leaf(F32, 40, 3, 1, 2), params))
    yield case_of(build.soft_max(x, leaf(F16, 40, 3, 2, 1), params))
    yield case_of(build.soft_max(x, leaf(F32, 40, 8), params), "a mask with more rows")
    yield case_of(build.soft_max(gapped(F32, 40, 3, 4), None, params))


def _rope() -> Iterator[Case]:
    sections = (11, 11, 10, 0)
    for mode in (ROPE_NORM, ROPE_NEOX):
        for d, n_heads, t in ((64, 9, 1), (128, 3, 7), (80, 2, 33)):
            yield _roped(leaf(F32, d, n_heads, t), RopeParams(d, mode))
            yield _roped(leaf(F32, d, n_heads, t), RopeParams(d // 2, mode), with_factors=True)
        yarn = RopeParams(
            64, mode, n_ctx_orig=4096, freq_base=1e6, freq_scale=0.25, ext_factor=1.0,
            attn_factor=1.1,
        )  # fmt: skip
        yield _roped(leaf(F32, 64, 3, 5), yarn)
        yield _roped(gapped(F32, 64, 3, 5), RopeParams(64, mode))
        qkv = leaf(F32, 64 * 9, 5)
        view = build.view(qkv, (64, 3, 5), (256, qkv.nb[1]), 64 * 4 * 3)
        yield _roped(view, RopeParams(64, mode), note="a part of a merged product")
        yield _roped(leaf(F32, 96, 3, 5), RopeParams(32, mode, offset=64))
    for mode in (ROPE_MROPE, ROPE_IMROPE):
        for t in (1, 7):
            yield _roped(leaf(F32, 64, 4, t), RopeParams(64, mode, sections=sections))
            yield _roped(leaf(F32, 80, 4, t), RopeParams(64, mode, sections=sections))


def _roped(x: Tensor, params: RopeParams, *, with_factors: bool = False, note: str = "") -> Case:
    n_positions = x.ne[2] * (4 if any(params.sections) else 1)
    factors = leaf(F32, params.n_dims // 2) if with_factors else None
    return case_of(build.rope(x, leaf(I32, n_positions), factors, params), note)


def _recurrent() -> Iterator[Case]:
    for d_conv, t, c, s in ((4, 1, 96, 1), (4, 33, 96, 1), (3, 5, 17, 2)):
        x = leaf(F32, d_conv - 1 + t, c, s)
        yield case_of(build_recurrent.ssm_conv(x, leaf(F32, d_conv, c)))
    for d_state, d, n_heads, groups, t, s in (
        (16, 1, 64, 1, 1, 1), (16, 1, 64, 1, 21, 2), (64, 32, 6, 1, 5, 1), (128, 64, 4, 2, 9, 2),
    ):  # fmt: skip
        inputs = leaf(F32, d_state, groups, t, s), leaf(F32, d_state, groups, t, s)
        node = build_recurrent.ssm_scan(
            leaf(F32, d_state, d, n_heads, s + 1), leaf(F32, d, n_heads, t, s),
            leaf(F32, n_heads, t, s), leaf(F32, d_state if d == 1 else 1, n_heads), *inputs,
            leaf(I32, s),
        )  # fmt: skip
        yield case_of(node)
    for d, hk, h, t, s in ((32, 2, 2, 1, 1), (64, 2, 4, 11, 1), (32, 1, 3, 5, 2)):
        keys = leaf(F32, d, hk, t, s), leaf(F32, d, hk, t, s)
        gates = leaf(F32, 1, h, t, s), leaf(F32, 1, h, t, s)
        state = leaf(F32, d, d, h, s)
        yield case_of(build_recurrent.gated_delta_net(*keys, leaf(F32, d, h, t, s), *gates, state))
