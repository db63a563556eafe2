"""Shape rules of recurrent operations; the recorded graphs hold them to real ones."""

import pytest

from engine.core import build
from engine.core.build_recurrent import gated_delta_net, scale_inplace, ssm_conv, ssm_scan
from engine.core.ops import Op, ScaleParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType


def t(*ne: int, tensor_type: TensorType = TensorType.F32, name: str = "x") -> Tensor:
    return Tensor(tensor_type, shape4(*ne), name=name)


def test_a_convolution_gives_an_output_for_every_new_input():
    made = ssm_conv(t(3 + 5, 12, 2), t(4, 12))

    assert (made.op, made.ne) == (Op.SSM_CONV, (12, 5, 2, 1))


@pytest.mark.parametrize(("decays", "head", "n_head"), [((16, 8), 1, 8), ((1, 8), 4, 8)])
def test_a_scan_gives_outputs_then_states(decays, head, n_head):
    n_tokens, d_state = 5, 16
    made = ssm_scan(
        t(d_state, head, n_head, 1), t(head, n_head, n_tokens), t(n_head, n_tokens), t(*decays),
        t(d_state, 2, n_tokens), t(d_state, 2, n_tokens), t(1, tensor_type=TensorType.I32),
    )  # fmt: skip

    n_outputs, n_states = head * n_head * n_tokens, d_state * head * n_head
    assert made.ne == (n_outputs + n_states, 1, 1, 1)


def test_a_delta_net_gives_a_row_a_token_then_states():
    made = gated_delta_net(
        t(16, 2, 5), t(16, 2, 5), t(16, 4, 5), t(1, 4, 5), t(1, 4, 5), t(16, 16, 4)
    )

    assert made.ne == (64, 5 + 16, 1, 1)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(AssertionError):
        gated_delta_net(t(16, 2, 5), t(16, 2, 5), t(16, 4, 5), t(1, 4, 5), t(1, 4, 5), t(16, 16, 2))
    with pytest.raises(AssertionError):
        ssm_conv(t(8, 12), t(4, 13))


def test_scaling_in_place_is_a_view_of_what_it_scales():
    state = t(8, 1, name="state")

    made = scale_inplace(build.view(state, (0,)), 0.0)

    assert (made.op, made.params, made.view_src) == (Op.SCALE, ScaleParams(0.0), state)
    assert (made.name, made.n_bytes) == ("state (view) (view)", 0)


def test_a_cast_is_its_own_second_source():
    x = t(8, 3, name="x")

    made = build.cast(build.permute(x, (1, 0, 2, 3)), TensorType.F16)

    assert (made.op, made.type, made.ne) == (Op.CPY, TensorType.F16, (3, 8, 1, 1))
    assert made.src[1] is made
    assert made.name == "x (permuted) (copy)"
    assert made.is_contiguous
