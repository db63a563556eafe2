"""The same bits from any number of threads, and from any order of Python's sets."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create
from engine.core import build
from engine.core.build_recurrent import gated_delta_net, ssm_conv, ssm_scan
from engine.core.ops import (
    ROPE_IMROPE,
    FlashAttnParams,
    GluOp,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.types import TensorType as T
from tests.engine.backends.cpu.cpu_split import CpuSplit, random

FLOATS = (T.F32, T.F16, T.BF16)
BLOCKS = (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.MXFP4, T.Q4_K, T.Q5_K, T.Q6_K)
PLAIN = (T.Q2_K, T.IQ3_XXS)


def digest_of_everything(n_threads: int, t: int) -> str:
    """A hash of what every kernel makes of `t` tokens, large enough to be shared by threads."""
    backend, digest = CpuBackend(create().devices()[0], n_threads), hashlib.sha256()
    for make in (products, experts, attention, rows, recurrent):
        split = CpuSplit()
        nodes = make(split, t)
        backend.graph_compute(split.graph(*nodes))
        for node in nodes:
            digest.update(np.ascontiguousarray(split.read(node)).tobytes())
    backend.dispose()
    return digest.hexdigest()


def weight(split: CpuSplit, kind: T, *ne: int):
    if kind.is_quantized:
        return split.random_blocks(kind, *ne)
    return split.leaf(random(tuple(reversed(ne)), 1), kind)


def products(split: CpuSplit, t: int):
    x = split.leaf(random((t, 512), 2))
    return [build.mul_mat(weight(split, kind, 512, 200), x) for kind in FLOATS + BLOCKS + PLAIN]


def experts(split: CpuSplit, t: int):
    x, scores = split.leaf(random((t, 1, 512), 2)), split.leaf(random((t, 8), 3))
    order = build.argsort(scores, descending=True)
    ids = build.view(order, (3, t), (order.nb[1],))
    weights = [weight(split, kind, 512, 72, 8) for kind in FLOATS + BLOCKS + PLAIN]
    return [order, ids, *(build.mul_mat_id(each, x, ids) for each in weights)]


def attention(split: CpuSplit, t: int):
    q = build.permute(split.leaf(random((t, 6, 64), 1)), (0, 2, 1, 3))
    nodes = [q]
    for kind in (T.F16, T.F32, T.Q8_0):
        k, v = (
            build.permute(split.leaf(random((300, 2, 64), i), kind), (0, 2, 1, 3)) for i in (2, 3)
        )
        nodes += [k, v, build.flash_attn_ext(q, k, v, None, FlashAttnParams(0.125))]
    mask, sinks = split.leaf(random((t, 300), 4), T.F16), split.leaf(random((6,), 5))
    params = FlashAttnParams(0.125, 8.0)
    return [*nodes, build.flash_attn_ext(q, nodes[1], nodes[2], mask, params, sinks=sinks)]


def rows(split: CpuSplit, t: int):
    x = split.leaf(random((t, 6, 512), 1))
    positions = split.leaf(np.arange(t), T.I32)
    turned = build.permute(x, (0, 2, 1, 3))
    rotated = build.rope(build.permute(turned, (0, 2, 1, 3)), positions, None, RopeParams(512, 2))
    sections = RopeParams(256, ROPE_IMROPE, sections=(11, 11, 10, 0), offset=64)
    four = split.leaf(np.arange(4 * t), T.I32)
    return [
        build.norm(x, 1e-5),
        build.concat(x, x, 1),
        build.repeat(x, 1024, 6, t),
        build.fill(x, 3.0),
        build.unary(x, UnaryOp.SOFTPLUS),
        build.glu_split(x, x, GluOp.SWIGLU_OAI, alpha=1.702, limit=7.0),
        build.rope(x, four, None, sections),
        build.rms_norm(x, 1e-5),
        build.soft_max(x, None, SoftMaxParams(0.5)),
        build.sum_rows(x),
        build.glu_split(x, x, GluOp.GEGLU),
        build.unary(x, UnaryOp.TANH),
        turned,
        build.cont(turned),
        rotated.src[0],
        rotated,
    ]


def recurrent(split: CpuSplit, t: int):
    window, kernel = split.leaf(random((1, 512, t + 3), 1)), split.leaf(random((512, 4), 2))
    states, ids = split.leaf(random((3, 64, 8, 16), 3)), split.leaf(np.array([2]), T.I32)
    x, dt = split.leaf(random((1, t, 64, 8), 4)), split.leaf(random((1, t, 64), 5))
    rates, b = split.leaf(-np.abs(random((64, 16), 6))), split.leaf(random((1, t, 2, 16), 7))
    q, v = split.leaf(random((1, t, 4, 64), 8) * 0.1), split.leaf(random((1, t, 8, 64), 9))
    gate, memory = (
        split.leaf(-np.abs(random((1, t, 8, 1), 10))),
        split.leaf(random((8, 64, 64), 11)),
    )
    return [
        ssm_conv(window, kernel),
        ssm_scan(states, x, dt, rates, b, b, ids),
        gated_delta_net(q, q, v, gate, gate, memory),
    ]


@pytest.mark.parametrize("t", [1, 5, 70])
def test_the_number_of_threads_changes_no_bit(t):
    alone = digest_of_everything(1, t)

    assert {digest_of_everything(n_threads, t) for n_threads in (2, 3)} == {alone}


def test_the_seed_of_pythons_hashes_changes_no_bit():
    code = f"from {__name__} import digest_of_everything; print(digest_of_everything(2, 5))"
    if "." not in __name__:
        code = code.replace(__name__, "tests.engine.backends.cpu.test_determinism")

    digests = set()
    for seed in ("0", "1234"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout.strip())

    assert digests == {digest_of_everything(2, 5)}
