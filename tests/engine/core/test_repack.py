"""Which weights the CPU may keep interleaved: ggml's table, for x86 and for Arm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import build
from engine.core.devices import BufferFacts, BufferTypeFacts
from engine.core.repack import (
    CPU_REPACK,
    RECORDED_FEATURES,
    reads_repacked,
    supports_repacked,
    takes_repacked,
)
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

T = TensorType
F32 = T.F32
HOST = BufferTypeFacts("CPU", is_host=True)
DEVICE = BufferTypeFacts("GPU0")

AVX2 = frozenset({"AVX", "AVX2", "F16C", "FMA"})
DOTPROD = frozenset({"NEON", "DOTPROD"})
INT8 = frozenset({"NEON", "MATMUL_INT8"})
WIDE_SVE = INT8 | {"SVE", "SVE_CNT=32"}


def leaf(kind: TensorType, *ne: int, buft: BufferTypeFacts | None = None) -> Tensor:
    return Tensor(kind, shape4(*ne), buffer=None if buft is None else BufferFacts(buft))


def product(weight: Tensor, x_buft: BufferTypeFacts | None = None) -> Tensor:
    return build.mul_mat(weight, leaf(F32, weight.ne[0], 512, buft=x_buft))


def experts(weight: Tensor) -> Tensor:
    return build.mul_mat_id(weight, leaf(F32, weight.ne[0], 2, 512), leaf(T.I32, 2, 512))


def step_of(kind: TensorType, features: frozenset[str]) -> int:
    """The smallest multiple that rows must have, 0 when no number of rows is taken."""
    taken = []
    for n_rows in range(2, 17):
        weight = leaf(kind, 256, n_rows)
        if takes_repacked(weight, product(weight), features):
            taken.append(n_rows)
    if not taken:
        return 0
    assert taken == [n for n in range(2, 17) if n % taken[0] == 0]
    return taken[0]


@pytest.mark.parametrize(
    ("features", "steps"),
    [
        (RECORDED_FEATURES, {T.Q4_0: 8, T.Q4_K: 8, T.Q2_K: 8, T.IQ4_NL: 8, T.MXFP4: 8}),
        (AVX2, {T.Q4_0: 8, T.Q4_K: 8, T.IQ4_NL: 8, T.MXFP4: 8}),
        (
            DOTPROD,
            {T.Q4_0: 4, T.Q4_K: 8, T.Q5_K: 8, T.Q6_K: 8, T.Q8_0: 4, T.IQ4_NL: 4, T.MXFP4: 4},
        ),
        (INT8, {T.Q4_0: 4, T.Q4_K: 8, T.Q5_K: 8, T.Q6_K: 8, T.Q8_0: 4}),
        (WIDE_SVE, {T.Q4_0: 4, T.Q4_K: 8, T.Q5_K: 8, T.Q6_K: 8, T.Q8_0: 4}),
        (frozenset({"SVE", "SVE_CNT=32", "MATMUL_INT8"}), {T.Q4_0: 8}),
        (frozenset({"SVE", "SVE_CNT=16", "MATMUL_INT8"}), {}),
        (frozenset({"AVX", "FMA"}), {}),
        (frozenset({"NEON"}), {}),
    ],
    ids=["server", "avx2", "dotprod", "i8mm", "wide sve", "sve 32", "sve 16", "old x86", "old arm"],
)
def test_rows_of_each_type_are_a_multiple_that_the_processor_sets(features, steps):
    assert {kind: step for kind in T if (step := step_of(kind, features))} == steps


def test_matrices_are_multiplied_plainly_and_stacks_by_ids():
    matrix, stack = leaf(T.Q4_0, 64, 8), leaf(T.Q4_0, 64, 8, 4)
    by_head = build.mul_mat(stack, leaf(F32, 64, 512, 4))

    assert takes_repacked(matrix, product(matrix), AVX2)
    assert takes_repacked(stack, experts(stack), AVX2)
    assert not takes_repacked(stack, by_head, AVX2)


def test_a_stack_of_one_matrix_is_no_stack():
    weight = leaf(T.Q4_0, 64, 8, 1)

    assert not takes_repacked(weight, experts(weight), AVX2)


def test_activations_are_f32_in_host_memory_or_have_no_memory_yet():
    weight = leaf(T.Q4_0, 64, 8)

    assert takes_repacked(weight, product(weight), AVX2)
    assert takes_repacked(weight, product(weight, HOST), AVX2)
    assert not takes_repacked(weight, product(weight, DEVICE), AVX2)
    half = build.mul_mat(weight, leaf(T.F16, 64, 512))
    assert not takes_repacked(weight, half, AVX2)


def test_no_other_operation_reads_interleaved_weights():
    table = leaf(T.Q4_0, 64, 8, buft=CPU_REPACK)
    rows = build.get_rows(table, leaf(T.I32, 3))

    assert reads_repacked(rows)
    assert not supports_repacked(rows, AVX2)


def test_only_the_first_source_may_be_interleaved():
    weight, x = leaf(T.Q4_0, 64, 8), leaf(F32, 64, 512, buft=CPU_REPACK)
    swapped = build.mul_mat(weight, x)

    assert reads_repacked(swapped)
    assert not supports_repacked(swapped, AVX2)


def test_a_product_of_an_interleaved_weight_is_supported():
    weight = leaf(T.Q4_0, 64, 8, buft=CPU_REPACK)

    assert reads_repacked(product(weight))
    assert supports_repacked(product(weight), AVX2)
    assert not reads_repacked(product(leaf(T.Q4_0, 64, 8, buft=HOST)))


@given(st.sampled_from(list(T)), st.integers(1, 64))
def test_a_weight_takes_its_own_bytes_there(kind, n_rows):
    weight = leaf(kind, 256, n_rows)

    assert CPU_REPACK.alloc_bytes(weight) == weight.n_bytes
