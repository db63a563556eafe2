"""Shapes, strides and spans in bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import build
from engine.core.devices import BufferFacts, BufferTypeFacts
from engine.core.ops import GluOp, Op, UnaryOp
from engine.core.tensor import Tensor, contiguous_strides, shape4, span_bytes
from engine.core.types import TensorType

F32, Q4_1 = TensorType.F32, TensorType.Q4_1
SHAPES = st.tuples(*[st.integers(1, 5)] * 4)


@pytest.mark.parametrize(
    ("tensor_type", "ne", "nb"),
    [
        (F32, (3, 4, 5, 6), (4, 12, 48, 240)),
        (TensorType.F16, (3, 4, 1, 1), (2, 6, 24, 24)),
        (Q4_1, (64, 3, 2, 1), (20, 40, 120, 240)),
    ],
)
def test_strides_without_gaps(tensor_type, ne, nb):
    assert contiguous_strides(tensor_type, ne) == nb


@pytest.mark.parametrize(
    ("tensor_type", "ne", "nb", "expected"),
    [
        (F32, (3, 4, 1, 1), (4, 12, 48, 48), True),
        (F32, (3, 4, 1, 1), (4, 12, 7, 7), True),
        (F32, (3, 1, 4, 1), (4, 99, 12, 48), True),
        (F32, (1, 4, 1, 1), (99, 4, 16, 16), True),
        (F32, (3, 4, 1, 1), (4, 16, 64, 64), False),
        (F32, (3, 4, 1, 1), (8, 12, 48, 48), False),
        (F32, (4, 3, 1, 1), (12, 4, 48, 48), False),
        (Q4_1, (32, 2, 1, 1), (99, 20, 40, 40), True),
        (Q4_1, (64, 2, 1, 1), (99, 40, 80, 80), False),
    ],
)
def test_a_dimension_of_one_may_have_any_stride(tensor_type, ne, nb, expected):
    assert Tensor(tensor_type, ne, nb=nb).is_contiguous is expected


@pytest.mark.parametrize(
    ("tensor_type", "ne", "nb", "n_bytes"),
    [
        (F32, (3, 4, 1, 1), (4, 12, 48, 48), 48),
        (F32, (3, 4, 1, 1), (4, 100, 400, 400), 312),
        (F32, (4, 3, 1, 1), (12, 4, 48, 48), 48),
        (F32, (0, 4, 1, 1), (4, 0, 0, 0), 0),
        (Q4_1, (64, 2, 1, 1), (20, 40, 80, 80), 80),
        (Q4_1, (64, 2, 1, 1), (20, 100, 200, 200), 140),
    ],
)
def test_a_span_reaches_from_the_first_to_the_last_element(tensor_type, ne, nb, n_bytes):
    assert span_bytes(tensor_type, ne, nb) == n_bytes


@given(SHAPES)
def test_a_tensor_without_gaps_spans_its_elements(ne):
    tensor = Tensor(F32, ne)

    assert tensor.is_contiguous
    assert tensor.n_bytes == 4 * tensor.n_elems
    assert tensor.n_elems == tensor.ne[0] * tensor.n_rows


@given(SHAPES, st.permutations((0, 1, 2, 3)))
def test_a_permuted_tensor_spans_the_same_bytes(ne, axes):
    tensor = Tensor(F32, ne)

    assert build.permute(tensor, tuple(axes)).n_bytes == tensor.n_bytes


def test_missing_dimensions_are_one():
    assert shape4(7, 8) == (7, 8, 1, 1)


def test_five_dimensions_are_a_developers_mistake():
    with pytest.raises(AssertionError):
        shape4(1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("made", "desc"),
    [
        (lambda x: build.unary(x, UnaryOp.SILU), "SILU"),
        (lambda x: build.glu_split(x, x, GluOp.SWIGLU), "SWIGLU"),
        (lambda x: build.add(x, x), "ADD"),
    ],
)
def test_an_operation_is_described_as_ggml_does(made, desc):
    assert made(Tensor(F32, (4, 1, 1, 1))).op_desc == desc


def test_a_view_is_at_home_where_its_source_is():
    home = BufferFacts(BufferTypeFacts("GPU0"))
    base = Tensor(F32, (8, 1, 1, 1), buffer=home)
    view = build.view(base, (4,))

    assert (view.home, view.buffer) == (home, None)
    assert base.home is home


def test_a_view_has_the_bytes_of_its_source():
    x = Tensor(F32, (4, 2, 1, 1))
    view = build.view(build.view(x, (2, 2), (16,)), (2,), ())

    assert (x.base, view.base) == (x, x)


def test_a_layout_is_type_shape_and_strides():
    x = Tensor(F32, (4, 4, 1, 1))

    assert x.same_layout(Tensor(F32, (4, 4, 1, 1)))
    assert not x.same_layout(Tensor(TensorType.I32, (4, 4, 1, 1)))
    assert not x.same_layout(Tensor(F32, (4, 2, 2, 1)))
    assert not x.same_layout(build.transpose(x))


def test_a_tensor_is_shown_by_operation_name_type_and_shape():
    assert repr(Tensor(Q4_1, (64, 2, 1, 1), name="w")) == "<NONE 'w' q4_1 [64, 2, 1, 1]>"


@pytest.mark.parametrize(
    ("op", "is_view"), [(Op.VIEW, True), (Op.CPY, False), (Op.SET_ROWS, False)]
)
def test_view_operations_are_those_the_scheduler_looks_through(op, is_view):
    assert Tensor(F32, (1, 1, 1, 1), op=op).is_view_op is is_view
