"""What is packed into op_params is what the library's own functions write there."""

import ctypes

import pytest

from engine.backends.ggml.c_api import N_OP_PARAMS, Object, TensorStruct
from engine.backends.ggml.op_params import pack
from engine.backends.ggml.tensors import Context
from engine.core import build
from engine.core.ops import (
    ROPE_IMROPE,
    ROPE_NEOX,
    FlashAttnParams,
    GluOp,
    Op,
    Precision,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.tensor import Tensor
from engine.core.types import TensorType

INT, FLOAT, LONG, SIZE = ctypes.c_int, ctypes.c_float, ctypes.c_int64, ctypes.c_size_t
F32, F16, I32 = TensorType.F32, TensorType.F16, TensorType.I32

X = Tensor(F32, (64, 4, 6, 1))
Y = Tensor(F32, (64, 4, 6, 1))
SQUARE = Tensor(F32, (64, 64, 1, 1))
POSITIONS = Tensor(I32, (6, 1, 1, 1))
FOUR_POSITIONS = Tensor(I32, (24, 1, 1, 1))
KEYS = Tensor(F16, (64, 32, 6, 1))
QUERIES = Tensor(F32, (64, 4, 6, 1))

YARN = RopeParams(
    32, ROPE_NEOX, n_ctx_orig=4096, freq_base=5e5, freq_scale=0.25, ext_factor=1.0,
    attn_factor=0.75, beta_fast=16.0, beta_slow=2.0,
)  # fmt: skip
SECTIONS = RopeParams(32, ROPE_IMROPE, sections=(8, 4, 4, 0))
ATTENTION = FlashAttnParams(0.125, 0.0, 30.0, Precision.F32)

# Ours, and the library's function with its arguments after the context: tensors, numbers.
CASES = {
    "norm": (build.norm(X, 1e-5), "ggml_norm", [X], [(FLOAT, 1e-5)]),
    "rms_norm": (build.rms_norm(X, 1e-6), "ggml_rms_norm", [X], [(FLOAT, 1e-6)]),
    "scale": (
        build.scale(X, 0.5, -3.0), "ggml_scale_bias", [X], [(FLOAT, 0.5), (FLOAT, -3.0)],
    ),
    "clamp": (build.clamp(X, -1.5, 2.5), "ggml_clamp", [X], [(FLOAT, -1.5), (FLOAT, 2.5)]),
    "fill": (build.fill(X, 7.0), "ggml_fill", [X], [(FLOAT, 7.0)]),
    "concat": (build.concat(X, Y, 2), "ggml_concat", [X, Y], [(INT, 2)]),
    "pad": (build.pad(X, 5), "ggml_pad", [X], [(INT, 5), (INT, 0), (INT, 0), (INT, 0)]),
    "argsort": (build.argsort(X, descending=True), "ggml_argsort", [X], [(INT, 1)]),
    "mul_mat": (build.mul_mat(SQUARE, X), "ggml_mul_mat", [SQUARE, X], []),
    "get_rows": (build.get_rows(SQUARE, POSITIONS), "ggml_get_rows", [SQUARE, POSITIONS], []),
    "soft_max": (
        build.soft_max(X, None, SoftMaxParams(0.25, 0.0)),
        "ggml_soft_max_ext", [X, None], [(FLOAT, 0.25), (FLOAT, 0.0)],
    ),
    "view": (
        build.view(X, (32, 2, 6), (256, 1024), 128),
        "ggml_view_3d", [X],
        [(LONG, 32), (LONG, 2), (LONG, 6), (SIZE, 256), (SIZE, 1024), (SIZE, 128)],
    ),
    "rope with yarn": (
        build.rope(X, POSITIONS, None, YARN),
        "ggml_rope_ext", [X, POSITIONS, None],
        [(INT, 32), (INT, ROPE_NEOX), (INT, 4096),
         *((FLOAT, value) for value in (5e5, 0.25, 1.0, 0.75, 16.0, 2.0))],
    ),
    "rope with sections": (
        build.rope(X, FOUR_POSITIONS, None, SECTIONS),
        "ggml_rope_multi", [X, FOUR_POSITIONS, None],
        [(INT, 32), (INT * 4, (INT * 4)(8, 4, 4, 0)), (INT, ROPE_IMROPE), (INT, 0),
         *((FLOAT, value) for value in (1e4, 1.0, 0.0, 1.0, 32.0, 1.0))],
    ),
    "swiglu": (build.glu_split(X, Y, GluOp.SWIGLU), "ggml_swiglu_split", [X, Y], []),
    "geglu of one tensor": (build.glu(X, GluOp.GEGLU), "ggml_geglu", [X], []),
    "swiglu_oai": (
        build.glu_split(X, Y, GluOp.SWIGLU_OAI, alpha=1.5, limit=7.0),
        "ggml_swiglu_oai", [X, Y], [(FLOAT, 1.5), (FLOAT, 7.0)],
    ),
    **{
        f"unary {kind}": (build.unary(X, kind), f"ggml_{kind.lower()}", [X], [])
        for kind in UnaryOp
    },
}  # fmt: skip


def made_by_the_library(library_reg, context, function, tensors, numbers):
    """The tensor that the library's function gives."""
    handle = ctypes.CDLL(library_reg.base.path)
    make = getattr(handle, function)
    make.restype = Object
    make.argtypes = [Object, *(Object for _ in tensors), *(kind for kind, _ in numbers)]
    at = [None if tensor is None else context.new(tensor) for tensor in tensors]
    return make(context.address, *at, *(value for _, value in numbers))


def padded(words):
    return [*words, *[0] * (N_OP_PARAMS - len(words))]


@pytest.mark.parametrize(("ours", "function", "tensors", "numbers"), CASES.values(), ids=CASES)
def test_the_words_are_those_that_the_library_writes(reg, ours, function, tensors, numbers):
    context = Context(reg.base, 8)

    theirs = TensorStruct.from_address(
        made_by_the_library(reg, context, function, tensors, numbers)
    )

    assert padded(pack(ours, reg.base.numbers)) == list(theirs.op_params)
    assert reg.base.numbers.ops[ours.op] == theirs.op
    assert (ours.ne, ours.nb) == (tuple(theirs.ne), tuple(theirs.nb))


def test_the_words_of_attention_are_those_that_the_library_writes(reg):
    context = Context(reg.base, 8)
    ours = build.flash_attn_ext(QUERIES, KEYS, KEYS, None, ATTENTION)

    at = made_by_the_library(
        reg, context, "ggml_flash_attn_ext", [QUERIES, KEYS, KEYS, None],
        [(FLOAT, 0.125), (FLOAT, 0.0), (FLOAT, 30.0)],
    )  # fmt: skip
    set_precision = ctypes.CDLL(reg.base.path).ggml_flash_attn_ext_set_prec
    set_precision.argtypes = [Object, INT]
    set_precision(at, Precision.F32)

    theirs = TensorStruct.from_address(at)
    assert padded(pack(ours, reg.base.numbers)) == list(theirs.op_params)
    assert ours.ne == tuple(theirs.ne)


def test_a_view_of_a_view_keeps_the_offset_in_its_own_source(reg):
    first = build.view(X, (32, 4), (256,), 64)
    second = build.view(first, (8, 4), (256,), 32)

    assert pack(second, reg.base.numbers) == [32, 0]
    assert second.view_offs == 96


def test_states_are_asked_for_once(reg):
    scan = Tensor(F32, (64, 1, 1, 1), op=Op.SSM_SCAN)

    assert pack(scan, reg.base.numbers) == [1]
