"""Graphs are ordered as ggml orders them."""

from engine.core import build
from engine.core.graph import GraphBuilder
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType


def leaf(name=""):
    return Tensor(TensorType.F32, (4, 4, 1, 1), name=name)


def norm(name, x):
    made = build.rms_norm(x, 1e-5)
    made.name = name
    return made


def names(builder):
    graph = builder.build()
    return [n.name for n in graph.nodes], [n.name for n in graph.leafs]


def test_sources_come_first_depth_first_in_source_order():
    """x ──► a ──► b ──┐
    y ──► c ──► sum ◄──┘, whose sources are (c, b)"""
    b = norm("b", norm("a", leaf("x")))
    total = build.add(norm("c", leaf("y")), b)
    builder = GraphBuilder()

    builder.expand(total)

    assert names(builder) == (["c", "a", "b", "node_3"], ["y", "x"])


def test_a_tensor_with_two_readers_is_visited_once():
    a = norm("a", leaf("x"))
    builder = GraphBuilder()

    builder.expand(build.add(norm("b", a), a))

    assert names(builder)[0] == ["a", "b", "node_2"]


def test_expand_calls_decide_the_order_and_not_the_order_of_making():
    x = leaf("x")
    first, second = norm("made first", x), norm("made second", x)
    builder = GraphBuilder()

    builder.expand(second)
    builder.expand(first)
    builder.expand(second)

    assert names(builder)[0] == ["made second", "made first"]


def test_unnamed_tensors_are_named_by_their_place():
    builder = GraphBuilder()

    builder.expand(build.add(leaf(), leaf()))

    assert names(builder) == (["node_0"], ["leaf_0", "leaf_1"])


def test_nodes_are_to_be_computed_and_leafs_are_not():
    x = leaf("x")
    a = norm("a", x)
    builder = GraphBuilder()

    builder.expand(a)

    assert (a.flags, x.flags) == (Flag.COMPUTE, Flag.NONE)


def test_what_a_view_sees_is_visited_as_its_source():
    x = leaf("x")
    builder = GraphBuilder()

    builder.expand(build.view(norm("a", x), (4,)))

    assert names(builder) == (["a", "a (view)"], ["x"])


def test_a_deep_chain_does_not_need_a_deep_stack():
    x = leaf("x")
    for i in range(5000):
        x = norm(f"n{i}", x)
    builder = GraphBuilder()

    builder.expand(x)

    assert len(builder.build().nodes) == 5000
