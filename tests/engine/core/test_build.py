"""Shape rules: hand-made cases, then every node of a recorded run of real llama.cpp."""

import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams, GluOp, Op, RopeParams, SoftMaxParams
from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Tensor, shape4
from engine.core.types import TYPE_BY_LABEL, TensorType
from tests.engine.model.smollm2 import MODEL, planner
from tests.oracle import golden

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64


def t(*ne: int, tensor_type: TensorType = F32, name: str = "x") -> Tensor:
    return Tensor(tensor_type, shape4(*ne), name=name)


def ids(*ne: int) -> Tensor:
    return t(*ne, tensor_type=I32)


@pytest.mark.parametrize(
    ("made", "tensor_type", "ne"),
    [
        (build.mul_mat(t(64, 8, 1), t(64, 3, 4)), F32, (8, 3, 4, 1)),
        (build.mul_mat(t(64, 8, tensor_type=TensorType.Q4_0), t(64, 3)), F32, (8, 3, 1, 1)),
        (build.mul_mat_id(t(64, 8, 4), t(64, 1, 5), ids(2, 5)), F32, (8, 2, 5, 1)),
        (build.mul_mat_id(t(64, 8, 4), t(64, 2, 5), ids(2, 5)), F32, (8, 2, 5, 1)),
        (build.add(t(8, 3), t(8)), F32, (8, 3, 1, 1)),
        (build.mul(t(8, 3, tensor_type=F16), t(8)), F16, (8, 3, 1, 1)),
        (build.add_id(t(8, 2, 3), t(8, 4), ids(2, 3)), F32, (8, 2, 3, 1)),
        (build.norm(t(8, 3), 1e-5), F32, (8, 3, 1, 1)),
        (build.rms_norm(t(8, 3), 1e-5), F32, (8, 3, 1, 1)),
        (build.fill(t(8, 3), 1.0), F32, (8, 3, 1, 1)),
        (build.concat(t(8, 3), t(4, 3), 0), F32, (12, 3, 1, 1)),
        (build.concat(t(8, 3), t(8, 2), 1), F32, (8, 5, 1, 1)),
        (build.repeat(t(8, 1, 3), 8, 4, 3), F32, (8, 4, 3, 1)),
        (build.glu(t(8, 3), GluOp.SWIGLU), F32, (4, 3, 1, 1)),
        (build.scale(t(8, 3), 2.0), F32, (8, 3, 1, 1)),
        (build.rope(t(8, 2, 3), ids(3), None, RopeParams(8)), F32, (8, 2, 3, 1)),
        (build.soft_max(t(8, 3), None, SoftMaxParams()), F32, (8, 3, 1, 1)),
        (
            build.flash_attn_ext(
                t(16, 5, 4), t(16, 9, 2), t(24, 9, 2), t(9, 5, tensor_type=F16), FlashAttnParams()
            ),
            F32,
            (24, 4, 5, 1),
        ),
        (build.get_rows(t(64, 9, tensor_type=TensorType.Q4_0), ids(3)), F32, (64, 3, 1, 1)),
        (build.get_rows(ids(64, 9), ids(3)), I32, (64, 3, 1, 1)),
        (build.get_rows(t(1, 4, 2, 3), ids(2, 2, 3)), F32, (1, 2, 2, 3)),
        (build.argsort(t(8, 3)), I32, (8, 3, 1, 1)),
        (build.sum_rows(t(8, 3)), F32, (1, 3, 1, 1)),
        (build.clamp(t(8, 3), 0.0, 1.0), F32, (8, 3, 1, 1)),
        (build.pad(t(8, 3, tensor_type=F16), 4), F16, (12, 3, 1, 1)),
        (build.transpose(t(8, 3)), F32, (3, 8, 1, 1)),
        (build.permute(t(8, 3, 2), (0, 2, 1, 3)), F32, (8, 2, 3, 1)),
        (build.reshape(t(8, 3), 4, 6), F32, (4, 6, 1, 1)),
        (build.cont(t(8, 3), (24, 1, 1, 1)), F32, (24, 1, 1, 1)),
    ],
    ids=lambda value: value.op_desc if isinstance(value, Tensor) else "",
)
def test_types_and_shapes_are_those_of_ggml(made, tensor_type, ne):
    assert (made.type, made.ne) == (tensor_type, ne)


@pytest.mark.parametrize(
    "impossible",
    [
        lambda: build.mul_mat(t(64, 8), t(32, 3)),
        lambda: build.mul_mat(t(64, 8, 3), t(64, 3, 4)),
        lambda: build.mul_mat(t(64, 8, 1, 3), t(64, 3, 1, 4)),
        lambda: build.mul_mat_id(t(64, 8, 4), t(32, 1, 5), ids(2, 5)),
        lambda: build.mul_mat_id(t(64, 8, 4), t(64, 1, 5), ids(2, 6)),
        lambda: build.mul_mat_id(t(64, 8, 4), t(64, 2, 5), ids(3, 5)),
        lambda: build.add(t(8, 3), t(3)),
        lambda: build.glu_split(t(8), t(4), GluOp.SWIGLU),
        lambda: build.concat(t(8, 3), t(8, 2), 0),
        lambda: build.repeat(t(8, 2), 8, 3),
        lambda: build.soft_max(t(8, 3, 2), None, SoftMaxParams(), sinks=t(2)),
        lambda: build.reshape(t(8, 3), 5),
        lambda: build.reshape(build.transpose(t(8, 3)), 24),
        lambda: build.cont(t(8), (4, 1, 1, 1)),
    ],
)
def test_shapes_that_do_not_go_together_are_a_developers_mistake(impossible):
    with pytest.raises(AssertionError):
        impossible()


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (build.reshape(t(8), 4, 2), "x (reshaped)"),
        (build.view(t(8), (4,)), "x (view)"),
        (build.permute(t(8), (1, 0, 2, 3)), "x (permuted)"),
        (build.transpose(t(8)), "x (transposed)"),
        (build.cont(t(8)), "x (cont)"),
        (build.cpy(t(8), t(8, name="to")), "to (copy of x)"),
        (build.cpy(t(8), t(8, name="")), "x (copy)"),
        (build.set_rows(t(8, 4, name="k"), t(8, 1), t(1, tensor_type=I64)), "k (view)"),
        (build.view(t(8, name=""), (4,)), " (view)"),
        (build.view(t(8, name="n" * 63), (4,)), "n" * 63),
        (build.add(t(8), t(8)), ""),
    ],
)
def test_names_are_derived_as_ggml_does(made, name):
    assert made.name == name


def test_sinks_are_the_last_source():
    mask, sinks = t(9, 5, tensor_type=F16), t(4)

    weights = build.soft_max(t(9, 5, 4), mask, SoftMaxParams(), sinks=sinks)
    attended = build.flash_attn_ext(
        t(16, 5, 4), t(16, 9, 2), t(16, 9, 2), mask, FlashAttnParams(), sinks=sinks
    )

    assert weights.src[1:] == (mask, sinks)
    assert attended.src[3:] == (mask, sinks)


def test_a_view_of_a_view_points_at_the_first_tensor():
    base = t(8, 8)
    inner = build.view(base, (4, 8), (32,), 16)
    outer = build.view(inner, (4, 2), (32,), 64)

    assert (outer.view_src, outer.view_offs) == (base, 80)
    assert outer.src == (inner,)


def test_strides_that_are_not_given_have_no_gaps():
    assert build.view(t(8, 8), (4, 2), (32,)).nb == (4, 32, 64, 64)
    assert build.view(t(64), (4, 2, 3)).nb == (4, 16, 32, 96)


def test_writing_rows_is_a_view_of_the_table_that_reads_it_last():
    table, rows, at = t(8, 4), t(8, 1), t(1, tensor_type=I64)

    made = build.set_rows(table, rows, at)

    assert (made.op, made.view_src, made.src) == (Op.SET_ROWS, table, (rows, at, table))
    assert not made.is_view_op


def recorded_nodes():
    """(op, name, type, ne, nb, source names) of every node of a real run: 5 tokens."""
    for line in golden.node_list(f"{MODEL}.p1.fa1").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 11 or not cells[0].isdigit():
            continue
        ne = tuple(int(n) for n in cells[4].strip("[]").split(","))
        nb = tuple(int(n) for n in cells[5].removeprefix("nb=[").rstrip("]").split(","))
        sources = cells[10].removeprefix("src=").rstrip(";").split(";")
        yield cells[1], cells[2], TYPE_BY_LABEL[cells[3]], ne, nb, sources


def test_every_node_of_a_real_run_has_our_operation_name_type_shape_and_strides():
    recorded = list(recorded_nodes())
    n_tokens, n_outputs = recorded[0][3][1], recorded[-1][3][1]
    made = planner("cpu").plan(Batch.PROMPT, BatchShape(n_tokens, 256, n_outputs))

    ours = [
        (node.op_desc, node.name, node.type, node.ne, node.nb, [s.name for s in node.src])
        for node in made.plan.graph.nodes
    ]

    assert len(ours) == len(recorded) > 900
    assert [o for o, r in zip(ours, recorded, strict=True) if o != r] == []
