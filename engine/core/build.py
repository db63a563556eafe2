"""Shape rules: one function an operation, each gives back the tensor that ggml would create.

Names of derived tensors follow ggml: "X (view)", "X (reshaped)", "X (permuted)", "X (transposed)",
"X (cont)", "DST (copy of SRC)". Shapes are in ggml order, ne[0] first.
"""

from __future__ import annotations

from engine.core.ops import (
    ArgsortParams,
    ClampParams,
    ConcatParams,
    FillParams,
    FlashAttnParams,
    GluOp,
    GluParams,
    MatmulParams,
    NormParams,
    Op,
    OpParams,
    PadParams,
    Precision,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.tensor import MAX_NAME, Shape, Tensor, shape4
from engine.core.types import TensorType


def mul_mat(weight: Tensor, x: Tensor, *, precision: Precision = Precision.DEFAULT) -> Tensor:
    """Product f32 [n, t, ..] of weight [k, n, ..] and x [k, t, ..]; weight repeats in ne2, ne3."""
    assert weight.ne[0] == x.ne[0], (weight, x)
    assert x.ne[2] % weight.ne[2] == 0, (weight, x)
    assert x.ne[3] % weight.ne[3] == 0, (weight, x)
    ne = (weight.ne[1], x.ne[1], x.ne[2], x.ne[3])
    return _new(Op.MUL_MAT, ne, (weight, x), MatmulParams(precision))


def mul_mat_id(weights: Tensor, x: Tensor, ids: Tensor) -> Tensor:
    """Expert matrices [k, n, n_expert] picked by ids [n_used, t] times x [k, 1 or n_used, t]."""
    assert weights.ne[0] == x.ne[0], (weights, x)
    assert ids.ne[1] == x.ne[2], (ids, x)
    assert ids.ne[0] % x.ne[1] == 0, (ids, x)
    ne = (weights.ne[1], ids.ne[0], x.ne[2], 1)
    return _new(Op.MUL_MAT_ID, ne, (weights, x, ids), MatmulParams())


def binary(op: Op, a: Tensor, b: Tensor) -> Tensor:
    """ADD, SUB, MUL or DIV; b repeats to the shape of a."""
    assert all(na % nb == 0 for na, nb in zip(a.ne, b.ne, strict=True)), (op, a, b)
    return _new(op, a.ne, (a, b), tensor_type=a.type)


def add(a: Tensor, b: Tensor) -> Tensor:
    """Sum of a and b; b repeats to the shape of a."""
    return binary(Op.ADD, a, b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """Product of a and b, element by element; b repeats to the shape of a."""
    return binary(Op.MUL, a, b)


def add_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """Sum of a [n, n_used, t] and the rows of b [n, n_expert] that ids [n_used, t] pick."""
    return _new(Op.ADD_ID, a.ne, (a, b, ids), tensor_type=a.type)


def norm(x: Tensor, eps: float) -> Tensor:
    """Rows of x less their mean, divided by their standard deviation."""
    return _new(Op.NORM, x.ne, (x,), NormParams(eps), tensor_type=x.type)


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """Rows of x divided by their root mean square."""
    return _new(Op.RMS_NORM, x.ne, (x,), NormParams(eps), tensor_type=x.type)


def scale(x: Tensor, factor: float, bias: float = 0.0) -> Tensor:
    """Product of x and factor, plus bias."""
    return _new(Op.SCALE, x.ne, (x,), ScaleParams(factor, bias), tensor_type=x.type)


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    """Elements of x moved into [low, high]."""
    return _new(Op.CLAMP, x.ne, (x,), ClampParams(low, high), tensor_type=x.type)


def fill(x: Tensor, value: float) -> Tensor:
    """A tensor like x whose elements are all `value`."""
    return _new(Op.FILL, x.ne, (x,), FillParams(value), tensor_type=x.type)


def concat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """a, then b behind it along `dim`; they are alike in the other dimensions."""
    assert all(a.ne[i] == b.ne[i] for i in range(4) if i != dim), (a, b, dim)
    ne = tuple(n + b.ne[i] if i == dim else n for i, n in enumerate(a.ne))
    return _new(Op.CONCAT, shape4(*ne), (a, b), ConcatParams(dim), tensor_type=a.type)


def repeat(x: Tensor, *ne: int) -> Tensor:
    """Copies of x beside one another, until they have the shape `ne`."""
    shape = shape4(*ne)
    assert all(n % small == 0 for n, small in zip(shape, x.ne, strict=True)), (x, ne)
    return _new(Op.REPEAT, shape, (x,), tensor_type=x.type)


def pad(x: Tensor, n_after: int) -> Tensor:
    """Rows of x made longer by `n_after` zeros."""
    ne = (x.ne[0] + n_after, *x.ne[1:])
    return _new(Op.PAD, ne, (x,), PadParams((n_after, 0, 0, 0)), tensor_type=x.type)


def unary(x: Tensor, kind: UnaryOp) -> Tensor:
    """An elementwise function of x."""
    return _new(Op.UNARY, x.ne, (x,), UnaryParams(kind), tensor_type=x.type)


def glu_split(
    gate: Tensor, up: Tensor, kind: GluOp, *, alpha: float = 0.0, limit: float = 0.0
) -> Tensor:
    """A gated unit of two tensors of one shape."""
    assert gate.ne == up.ne, (gate, up)
    params = GluParams(kind, alpha, limit)
    return _new(Op.GLU, gate.ne, (gate, up), params, tensor_type=gate.type)


def glu(x: Tensor, kind: GluOp) -> Tensor:
    """A gated unit of one tensor: the first half of each row is the gate, the second is up."""
    ne = (x.ne[0] // 2, *x.ne[1:])
    return _new(Op.GLU, ne, (x,), GluParams(kind), tensor_type=x.type)


def rope(x: Tensor, positions: Tensor, factors: Tensor | None, params: RopeParams) -> Tensor:
    """Rotate x [d, heads, t] by positions i32 [t]; factors f32 [n_dims/2] divide the angles.

    A mode with sections takes four times as many positions.
    """
    src = (x, positions) if factors is None else (x, positions, factors)
    return _new(Op.ROPE, x.ne, src, params, tensor_type=x.type)


def soft_max(
    x: Tensor, mask: Tensor | None, params: SoftMaxParams, *, sinks: Tensor | None = None
) -> Tensor:
    """Softmax over ne[0], mask added; `sinks` f32 [n_head] need a mask."""
    assert sinks is None or mask is not None, sinks
    src = tuple(tensor for tensor in (x, mask, sinks) if tensor is not None)
    return _new(Op.SOFT_MAX, x.ne, src, params, tensor_type=x.type)


def flash_attn_ext(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    params: FlashAttnParams,
    *,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention f32 [dv, h, t] of q [d, t, h], k [d, n_kv, hk] and v [dv, n_kv, hk].

    `sinks` f32 [h] need a mask.
    """
    assert sinks is None or mask is not None, sinks
    ne = (v.ne[0], q.ne[2], q.ne[1], q.ne[3])
    src = tuple(tensor for tensor in (q, k, v, mask, sinks) if tensor is not None)
    return _new(Op.FLASH_ATTN_EXT, ne, src, params)


def get_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of table [n, rows, a, b] picked by ids i32 [m, a, b] -> [n, m, a, b].

    They are f32 unless the table is i32.
    """
    tensor_type = TensorType.I32 if table.type is TensorType.I32 else TensorType.F32
    ne = (table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2])
    return _new(Op.GET_ROWS, ne, (table, ids), tensor_type=tensor_type)


def set_rows(table: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """A view of table after rows f32 [n, m] were written at ids i64 or i32 [m]."""
    result = view_of(table, Op.SET_ROWS, (rows, ids, table))
    result.name = derived_name(table, "(view)")
    return result


def cont(x: Tensor, ne: Shape | None = None) -> Tensor:
    """A gapless copy of x, perhaps of another shape with as many elements."""
    result = _new(Op.CONT, x.ne if ne is None else ne, (x,), tensor_type=x.type)
    assert result.n_elems == x.n_elems, (x, ne)
    result.name = derived_name(x, "(cont)")
    return result


def cpy(x: Tensor, target: Tensor) -> Tensor:
    """A view of target after x was written to it, converted to its type."""
    result = view_of(target, Op.CPY, (x, target))
    result.name = (
        derived_name(target, f"(copy of {x.name})") if target.name else derived_name(x, "(copy)")
    )
    return result


def cast(x: Tensor, tensor_type: TensorType) -> Tensor:
    """A gapless copy of x of another type; as in ggml the node is its own second source."""
    result = _new(Op.CPY, x.ne, (x,), tensor_type=tensor_type)
    result.src = (x, result)
    result.name = derived_name(x, "(copy)")
    return result


def reshape(x: Tensor, *ne: int) -> Tensor:
    """See x, which has no gaps, with another shape."""
    assert x.is_contiguous, x
    result = view_of(x, Op.RESHAPE, (x,), ne=shape4(*ne))
    assert result.n_elems == x.n_elems, (x, ne)
    result.name = derived_name(x, "(reshaped)")
    return result


def view(x: Tensor, ne: tuple[int, ...], nb: tuple[int, ...] = (), offset: int = 0) -> Tensor:
    """A window of x; `nb` are the byte strides of dimensions 1.., missing ones are gapless."""
    shape = shape4(*ne)
    strides = [x.type.block_bytes, *nb]
    while len(strides) < 4:
        i_dim = len(strides)
        gapless = x.type.row_bytes(shape[0]) if i_dim == 1 else strides[-1] * shape[i_dim - 1]
        strides.append(gapless)
    nb4 = (strides[0], strides[1], strides[2], strides[3])
    result = view_of(x, Op.VIEW, (x,), ne=shape, nb=nb4, offset=offset)
    result.name = derived_name(x, "(view)")
    return result


def permute(x: Tensor, axes: tuple[int, int, int, int]) -> Tensor:
    """See x with dimension i moved to place axes[i]."""
    ne, nb = [0] * 4, [0] * 4
    for i_dim, place in enumerate(axes):
        ne[place], nb[place] = x.ne[i_dim], x.nb[i_dim]
    result = view_of(
        x, Op.PERMUTE, (x,), ne=(ne[0], ne[1], ne[2], ne[3]), nb=(nb[0], nb[1], nb[2], nb[3])
    )
    result.name = derived_name(x, "(permuted)")
    return result


def transpose(x: Tensor) -> Tensor:
    """See x with dimensions 0 and 1 exchanged."""
    ne, nb = x.ne, x.nb
    result = view_of(
        x, Op.TRANSPOSE, (x,), ne=(ne[1], ne[0], ne[2], ne[3]), nb=(nb[1], nb[0], nb[2], nb[3])
    )
    result.name = derived_name(x, "(transposed)")
    return result


def argsort(x: Tensor, *, descending: bool = False) -> Tensor:
    """Indices i32 that sort each row."""
    params = ArgsortParams(descending)
    return _new(Op.ARGSORT, x.ne, (x,), params, tensor_type=TensorType.I32)


def sum_rows(x: Tensor) -> Tensor:
    """The sum of each row."""
    return _new(Op.SUM_ROWS, (1, *x.ne[1:]), (x,), tensor_type=x.type)


def view_of(
    x: Tensor,
    op: Op,
    src: tuple[Tensor, ...],
    *,
    ne: Shape | None = None,
    nb: Shape | None = None,
    offset: int = 0,
) -> Tensor:
    """A tensor that shares the bytes of x; views of views point at the first tensor."""
    shape = x.ne if ne is None else ne
    strides = x.nb if ne is None and nb is None else nb
    return Tensor(
        x.type, shape, nb=strides, op=op, src=src, view_src=x.base, view_offs=x.view_offs + offset
    )


def derived_name(x: Tensor, suffix: str) -> str:
    """The name of x with a suffix; unnamed tensors give a name that starts with a space."""
    return f"{x.name} {suffix}"[:MAX_NAME]


def _new(
    op: Op,
    ne: Shape,
    src: tuple[Tensor, ...],
    params: OpParams = None,
    *,
    tensor_type: TensorType = TensorType.F32,
) -> Tensor:
    return Tensor(tensor_type, ne, op=op, params=params, src=src)
