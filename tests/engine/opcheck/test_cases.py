"""Cases: what a node is like, told without the graph it stands in."""

import pickle

import pytest

from engine.core import build
from engine.core.devices import CPU_BUFT
from engine.core.ops import EMPTY_OPS, GluOp, Op, UnaryOp
from engine.core.quants import READABLE, WRITABLE
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.built_in import built_in_cases
from engine.opcheck.cases import case_of, cases_of, counted_cases

F32, F16, I64 = TensorType.F32, TensorType.F16, TensorType.I64
BUILT_IN = [counted.case for counted in built_in_cases()]


def leaf(kind, *ne):
    return Tensor(kind, shape4(*ne))


def types_of(op):
    return {case.type for case in BUILT_IN if case.op is op}


def test_every_operation_has_built_in_cases():
    described = {case.op_desc for case in BUILT_IN}

    assert {case.op for case in BUILT_IN} == set(Op) - EMPTY_OPS
    assert {kind.value for kind in (*UnaryOp, *GluOp)} <= described


def test_every_type_of_weights_is_read_and_multiplied():
    labels = {kind.label for kind in READABLE}

    for op in (Op.MUL_MAT, Op.MUL_MAT_ID):
        assert types_of(op) == labels
    assert types_of(Op.GET_ROWS) == labels | {"i32"}


def test_every_type_of_a_cache_is_written_and_attended_to():
    labels = {kind.label for kind in WRITABLE}

    assert types_of(Op.SET_ROWS) == labels
    assert labels <= types_of(Op.FLASH_ATTN_EXT)


def test_no_case_comes_twice():
    assert len(set(BUILT_IN)) == len(BUILT_IN)


def test_tensors_of_a_case_are_again_like_the_case():
    for case in BUILT_IN:
        assert case_of(case.tensors(CPU_BUFT).node) == case


def test_a_case_crosses_to_another_process_unchanged():
    assert pickle.loads(pickle.dumps(BUILT_IN)) == BUILT_IN


def test_a_window_of_a_large_cache_becomes_a_window_of_what_it_spans():
    cache = leaf(F16, 192, 4096)
    window = build.view(cache, (64, 3, 30), (128, 384), 384 * 100)

    (source, _) = case_of(build.mul_mat(window, leaf(F32, 64, 2, 30))).sources

    assert (source.ne, source.nb) == ((64, 3, 30, 1), window.nb)
    assert source.memory_elems < 192 * 31


def test_what_is_written_in_place_lies_in_the_source_that_it_writes():
    table = leaf(F16, 64, 40)
    node = build.set_rows(table, leaf(F32, 64, 5), leaf(I64, 5))

    case = case_of(node)
    tensors = case.tensors(CPU_BUFT)

    assert case.target == 2
    assert tensors.node.view_src is tensors.memory[2]
    assert tensors.node.src[2] is tensors.memory[2]


def test_a_cast_is_its_own_second_source():
    case = case_of(build.cast(leaf(F32, 8), F16))

    node = case.tensors(CPU_BUFT).node

    assert case.type == "f32>f16"
    assert node.src[1] is node


@pytest.fixture
def layers(graph_of):
    """The graph of three layers of a norm and a product, on so many tokens."""

    def built(n_tokens):
        x, weight = leaf(F32, 64, n_tokens), leaf(TensorType.Q8_0, 64, 64)
        for _ in range(3):
            x = build.mul_mat(weight, build.reshape(build.rms_norm(x, 1e-5), 64, n_tokens))
        return graph_of(x)

    return built


def test_nodes_that_are_alike_are_counted_once_and_views_never(layers):
    counts = cases_of(layers(5))

    assert {case.op: n for case, n in counts.items()} == {Op.RMS_NORM: 3, Op.MUL_MAT: 3}


def test_a_models_cases_have_their_counts_in_both_graphs(layers):
    found = counted_cases(layers(5), layers(1))
    same = counted_cases(layers(1), layers(1))

    assert [(each.n_prompt, each.n_token) for each in found] == [(3, 0), (3, 0), (0, 3), (0, 3)]
    assert [(each.n_prompt, each.n_token) for each in same] == [(3, 3), (3, 3)]


def test_bytes_and_operations_are_those_that_a_kernel_needs():
    product = case_of(build.mul_mat(leaf(TensorType.Q8_0, 64, 10), leaf(F32, 64, 3)))
    rows = case_of(build.get_rows(leaf(F16, 64, 5000), leaf(TensorType.I32, 2)))
    written = case_of(build.set_rows(leaf(F16, 64, 5000), leaf(F32, 64, 2), leaf(I64, 2)))
    q, k = leaf(F32, 64, 2, 4), leaf(F16, 64, 32, 2)
    attention = case_of(build.flash_attn_ext(q, k, k, None, _attention_params()))

    assert product.n_bytes == 68 * 10 + 4 * 64 * 3 + 4 * 30
    assert product.n_flops == 2 * 64 * 30
    assert rows.n_bytes == 2 * 128 + 8 + 2 * 256
    assert written.n_bytes == 2 * 256 + 16 + 2 * 128
    assert attention.n_flops == 2 * 128 * 32 * 8


def _attention_params():
    from engine.core.ops import FlashAttnParams

    return FlashAttnParams(0.125)
