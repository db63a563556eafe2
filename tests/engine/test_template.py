"""The plug-in to begin with: short, within the contract, and right for every kind of operation."""

import ast
import functools
import importlib.util
import re

import numpy as np
import pytest

from engine import paths
from engine.backend.interface import Completion, Place, SplitGraph
from engine.core.devices import BufferUsage
from engine.core.ops import (
    GluOp,
    GluParams,
    NormParams,
    Op,
    ScaleParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.quants import quantize
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck import reference
from tests.engine.backends.cpu import rounded_reference

FILE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"
MAX_LINES = 150

SHAPE = shape4(32, 3, 2)
F32 = TensorType.F32


@pytest.fixture(scope="module")
def template():
    spec = importlib.util.spec_from_file_location("slow_template", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short():
    assert len(FILE.read_text().splitlines()) <= MAX_LINES


def test_it_imports_the_contract_and_facts_alone():
    modules = {
        node.module
        for node in ast.walk(ast.parse(FILE.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("engine")
    }

    assert {module.split(".")[1] for module in modules} == {"backend", "core"}


def numbers(*ne: int, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape4(*ne)[::-1])
    return values.astype(np.float32)


def leaf(values, tensor_type=F32) -> Tensor:
    return Tensor(tensor_type, values.shape[::-1])


def computed(template, node: Tensor, contents: dict[Tensor, np.ndarray]) -> np.ndarray:
    """What the backend writes for a node whose sources have these bytes."""
    (device,) = template.backend_init().devices()
    backend, memory = device.init_backend(), device.buffer_type()
    places = {}
    for tensor in (*node.src, node):
        places[tensor] = Place(memory.alloc_buffer(tensor.n_bytes, BufferUsage.ANY), 0)
    for tensor, raw in contents.items():
        places[tensor].buffer.set_tensor(0, raw)
    seen: list[Completion] = []
    backend.graph_compute(SplitGraph((node,), places)).on_complete(seen.append)
    times = seen[0].nodes
    assert times is not None
    assert list(times.nodes) == [0]
    starts, ends, _ = times.read()
    assert (ends >= starts).all()
    out = np.empty(node.n_bytes, np.uint8)
    places[node].buffer.get_tensor(0, out)
    return out.view(np.float32).reshape(node.ne[::-1])


X, ROW = numbers(*SHAPE), numbers(32, seed=1)
CASES = {
    **{
        op.value: (op, None, (X, ROW + 3), functools.partial(reference.binary, op, X, ROW + 3))
        for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV)
    },
    "SCALE": (Op.SCALE, ScaleParams(2.0, 1.0), (X,), lambda: reference.scale(X, 2.0, 1.0)),
    "RMS_NORM": (Op.RMS_NORM, NormParams(1e-5), (X,), lambda: reference.rms_norm(X, 1e-5)),
    "SILU": (
        Op.UNARY, UnaryParams(UnaryOp.SILU), (X,), lambda: reference.unary(UnaryOp.SILU, X),
    ),
    "SWIGLU of two": (
        Op.GLU, GluParams(GluOp.SWIGLU), (X, X + 1),
        lambda: reference.glu(GluOp.SWIGLU, X, X + 1),
    ),
    "SWIGLU of one": (
        Op.GLU, GluParams(GluOp.SWIGLU), (X,),
        lambda: reference.glu(GluOp.SWIGLU, X[..., :16], X[..., 16:]),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("op", "params", "sources", "expected"), CASES.values(), ids=CASES)
def test_an_operation_is_right(template, op, params, sources, expected):
    leafs = [leaf(values) for values in sources]
    expected = expected()
    node = Tensor(F32, expected.shape[::-1], op=op, params=params, src=tuple(leafs))
    contents = {
        tensor: values.view(np.uint8).reshape(-1)
        for tensor, values in zip(leafs, sources, strict=True)
    }

    result = computed(template, node, contents)

    assert template.RULES.supports_op(node)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weight_type", [F32, TensorType.F16, TensorType.Q4_0, TensorType.Q8_0])
@pytest.mark.parametrize("n_heads", [1, 4])
def test_a_product_is_right_for_weights_of_any_type(template, weight_type, n_heads):
    values, x = numbers(64, 5, 2), numbers(64, 3, 2 * n_heads, seed=2)
    raw = quantize(weight_type, values)
    weight, right = leaf(values, weight_type), leaf(x)
    node = Tensor(F32, shape4(5, 3, 2 * n_heads), op=Op.MUL_MAT, src=(weight, right))

    result = computed(template, node, {weight: raw, right: x.view(np.uint8).reshape(-1)})

    stored = rounded_reference.dequantized(weight_type, raw, values.shape)
    expected = x.astype(np.float64) @ np.repeat(stored, n_heads, 1).swapaxes(-1, -2)
    assert template.RULES.supports_op(node)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (Op.ADD, (F32, TensorType.F16)),
        (Op.ADD, (TensorType.F16, F32)),
        (Op.MUL_MAT, (TensorType.F16, TensorType.F16)),
        (Op.ROPE, (F32, F32)),
    ],
)
def test_what_it_has_no_kernel_for_is_left_to_others(template, op, types):
    sources = tuple(Tensor(each, SHAPE) for each in types)

    assert not template.RULES.supports_op(Tensor(F32, SHAPE, op=op, src=sources))


def test_the_manual_calls_the_copied_template_s_device_by_its_name(template):
    page = paths.resources_dir() / "manual" / "writing-a-backend.md"
    commands = [line for line in page.read_text().splitlines() if line.startswith("    python -m")]

    named = [re.findall(r"--(?:backend|devices) (\S+)", command) for command in commands]

    device = template.backend_init().devices()[0].facts.name
    assert [names for names in named if names] == [[device], [device]]
