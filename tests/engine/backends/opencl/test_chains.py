"""Sums and norms of a token in one launch: when, and that every node of it is written."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.backends.opencl.split import encode_split
from engine.backends.opencl.tuning import CPU_TUNING, GPU_TUNING
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.ops import Op
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import NMSE, as_read, nmse, rand

F32, Q4_1, Q5_K = TensorType.F32, TensorType.Q4_1, TensorType.Q5_K
ANYWHERE = Place(HostBufferType(BufferTypeFacts("host", is_host=True)).alloc_buffer(64), 0)
EPS = 1e-5


def leaf(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne))


def kernels(*nodes, tuning=CPU_TUNING):
    calls = encode_split(nodes, lambda tensor: ANYWHERE, tuning, lambda n_bytes: ANYWHERE)
    return [call.kernel for call in calls]


def token(*, n_rows=1, n=64):
    """ADD, RMS_NORM, MUL of [n, n_rows]."""
    total = build.binary(Op.ADD, leaf(F32, n, n_rows), leaf(F32, n, n_rows))
    norm = build.rms_norm(total, EPS)
    return total, norm, build.binary(Op.MUL, norm, leaf(F32, n))


def test_what_a_token_needs_before_a_matmul_is_one_launch():
    nodes = token()

    names = kernels(*nodes, build.mul_mat(leaf(Q4_1, 64, 8), nodes[-1]))

    assert names == ["norm_chain", "mul_mat_vec"]


def test_a_norm_without_a_sum_before_it_is_a_chain_too():
    _, norm, product = token()

    assert kernels(norm, product) == ["norm_chain"]


def test_matmuls_that_share_a_product_share_its_rounding():
    nodes = token()
    matmuls = [build.mul_mat(leaf(Q4_1, 64, 8), nodes[-1]) for _ in range(3)]

    assert kernels(*nodes, *matmuls) == ["norm_chain", *["mul_mat_vec"] * 3]


def test_a_sum_that_is_not_what_is_normalised_stays_alone():
    other = build.binary(Op.ADD, leaf(F32, 64), leaf(F32, 64))
    _, norm, product = token()

    assert kernels(other, norm, product) == ["add", "norm_chain"]


def test_a_norm_whose_factor_is_no_row_stays_alone():
    norm = build.rms_norm(leaf(F32, 64, 2), EPS)

    assert kernels(norm, build.binary(Op.MUL, norm, leaf(F32, 64, 2))) == ["rms_norm", "mul"]


def test_a_prompt_is_worth_more_launches():
    assert kernels(*token(n_rows=512)) == ["add", "rms_norm", "mul"]


def test_gpus_launch_every_operation():
    assert kernels(*token(), tuning=GPU_TUNING) == ["add", "rms_norm", "mul"]


def test_a_write_to_the_held_activations_by_a_chain_makes_them_new():
    x, weight = leaf(F32, 64), leaf(Q4_1, 64, 8)
    norm = build.rms_norm(x, EPS)
    product = build.binary(Op.MUL, norm, leaf(F32, 64))
    first, second = build.mul_mat(weight, product), build.mul_mat(weight, product)

    names = kernels(norm, product, first, norm, product, second)

    assert names == ["norm_chain", "mul_mat_vec"] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("weight_type", [Q4_1, Q5_K, F32])
@pytest.mark.parametrize(("n", "n_rows"), [(256, 1), (512, 3)])
def test_a_chain_writes_every_node_of_it(bench, weight_type, n, n_rows):
    a, b = (bench.leaf(F32, rand(n_rows, n, scale=s)) for s in (1.0, 2.0))
    factor = bench.leaf(F32, rand(n))
    weight = bench.leaf(weight_type, rand(7, n, scale=0.1))
    total = build.binary(Op.ADD, a, b)
    norm = build.rms_norm(total, EPS)
    product = build.binary(Op.MUL, norm, factor)

    got = bench.compute(total, norm, product, build.mul_mat(weight, product))

    sums = bench.values[a].astype(np.float64) + bench.values[b]
    norms = sums / np.sqrt(np.mean(sums**2, axis=-1, keepdims=True) + EPS)
    assert nmse(bench.read(total)[0, 0], sums) <= NMSE
    assert nmse(bench.read(norm)[0, 0], norms) <= NMSE
    assert nmse(bench.read(product)[0, 0], norms * bench.values[factor]) <= NMSE
    x = bench.read(product)[0, 0]
    read = as_read(x, weight_type) if weight_type is not F32 else x.astype(np.float64)
    assert nmse(got[0, 0], read @ bench.floats(weight)[0, 0].T) <= NMSE


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 7, 13])
def test_rows_of_a_chain_may_have_any_length(bench, n):
    x, factor = bench.leaf(F32, rand(2, n)), bench.leaf(F32, rand(n))
    norm = build.rms_norm(x, EPS)

    got = bench.compute(norm, build.binary(Op.MUL, norm, factor))

    values = bench.values[x].astype(np.float64)
    want = values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + EPS) * bench.values[factor]
    assert nmse(got[0, 0], want) <= NMSE
