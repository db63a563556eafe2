"""A case in words says what it takes to make it again."""

from engine.core import build, build_recurrent
from engine.core.ops import ROPE_NEOX, RopeParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.built_in import built_in_cases
from engine.opcheck.cases import case_of
from engine.opcheck.words import case_words

F32, F16, I32 = TensorType.F32, TensorType.F16, TensorType.I32


def leaf(kind, *ne):
    return Tensor(kind, shape4(*ne))


def test_types_and_shapes_come_in_ggmls_order():
    product = build.mul_mat(leaf(TensorType.Q4_K, 256, 16), leaf(F32, 256, 3))

    assert case_words(case_of(product)) == "q4_K [256, 16], f32 [256, 3]"


def test_how_elements_lie_is_said():
    x = leaf(F32, 8, 6, 4)

    assert case_words(case_of(build.cont(build.transpose(x)))) == "f32 [6, 8, 4] transposed"
    permuted = build.permute(x, (0, 2, 1, 3))
    assert case_words(case_of(build.cont(permuted))) == "f32 [8, 4, 6] permuted"
    window = build.view(x, (4, 6), (32,), 16)
    assert case_words(case_of(build.cont(window))) == "f32 [4, 6] with gaps"


def test_parameters_that_are_not_at_their_default_are_named():
    rope = build.rope(leaf(F32, 64, 2, 3), leaf(I32, 3), None, RopeParams(32, ROPE_NEOX))
    inplace = build_recurrent.scale_inplace(leaf(F32, 8), 0.5)

    assert case_words(case_of(rope)) == "f32 [64, 2, 3], i32 [3]; n_dims 32, mode 2"
    assert case_words(case_of(inplace, "in place")) == "f32 [8]; scale 0.5, in place"
    assert case_words(case_of(build.cast(leaf(F32, 8), F16))) == "f32 [8]; to f16"


def test_no_two_cases_of_an_operation_read_the_same():
    told = [(c.case.op_desc, c.case.type, case_words(c.case)) for c in built_in_cases()]

    assert len(set(told)) == len(told), {each for each in told if told.count(each) > 1}
