"""What each member computes and hands over, node by node."""

from collections import Counter

import pytest

from engine.backends.meta.spread import Exchange, Stage, spread
from engine.core import build
from engine.core.ops import GluOp, Op
from engine.core.shards import one_of, shard_along
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError
from tests.engine.backends.meta.joined import ordered

F32 = TensorType.F32
N_TOKENS = 3


def leaf(*ne, name=""):
    return Tensor(F32, (*ne, *[1] * (4 - len(ne))), name=name)


def feed_forward(*sizes):
    """down(silu(gate x) * up x) + x, its nodes and how channels are shared."""
    n_ff = sum(sizes)
    x = leaf(8, N_TOKENS, name="x")
    up, gate, down = leaf(8, n_ff), leaf(8, n_ff), leaf(n_ff, 8)
    mixed = build.glu_split(build.mul_mat(gate, x), build.mul_mat(up, x), GluOp.SWIGLU)
    total = build.add(build.mul_mat(down, mixed), x)
    shards = {up: shard_along(1, sizes), gate: shard_along(1, sizes)}
    return ordered(total), shards | {down: shard_along(0, sizes)}


def spread_over(nodes, shards, n_members=2, **more):
    return spread(nodes, n_members, shards, read_outside=more.pop("read_outside", ()), **more)


def ops(stage):
    """Operations of each member, in order."""
    return [[node.op for node in nodes] for nodes in stage.nodes]


def test_members_compute_their_channels_then_exchange_sums_then_add_them():
    """
    member 0: gate up glu down | <- sums of 1 | add, residual
    member 1: gate up glu down | <- sums of 0 | add, residual
    """
    nodes, shards = feed_forward(32, 64)

    first, exchange, last = spread_over(nodes, shards).steps

    assert ops(first) == [[Op.MUL_MAT, Op.MUL_MAT, Op.GLU, Op.MUL_MAT]] * 2
    assert [[node.ne[0] for node in own] for own in first.nodes] == [
        [32, 32, 32, 8],
        [64, 64, 64, 8],
    ]
    assert [(move.source, move.target, move.n_bytes) for move in exchange.moves] == [
        (1, 0, 8 * N_TOKENS * 4),
        (0, 1, 8 * N_TOKENS * 4),
    ]
    assert ops(last) == [[Op.ADD, Op.ADD]] * 2


def test_parts_of_sums_are_added_in_the_order_of_members_on_each():
    nodes, shards = feed_forward(32, 32, 32)

    made = spread_over(nodes, shards, 3)

    _, exchange, last = made.steps
    received = {(move.target, move.source): move.received for move in exchange.moves}
    sent = {move.source: move.sent for move in exchange.moves}
    for member in range(3):
        terms = [
            sent[source] if source == member else received[member, source] for source in range(3)
        ]
        first, second = last.nodes[member][:2]
        assert first.src == (terms[0], terms[1])
        assert second.src == (first, terms[2])
        assert made.home_of[second] is nodes[-2]


def test_nothing_is_written_where_a_later_term_lies():
    """Member 2's own part is in the memory of the result until it is added."""
    nodes, shards = feed_forward(32, 32, 32)

    made = spread_over(nodes, shards, 3)

    first, second = made.steps[-1].nodes[2][:2]
    assert first in made.scratch
    assert second.src[1] in made.home_of


def test_a_member_without_channels_gets_every_sum():
    nodes, shards = feed_forward(32, 0, 64)

    first, exchange, last = spread_over(nodes, shards, 3).steps

    assert first.nodes[1] == ()
    assert Counter(move.target for move in exchange.moves) == {0: 1, 1: 2, 2: 1}
    assert ops(last)[1] == [Op.ADD, Op.ADD]


def test_what_one_member_has_alone_it_computes_and_hands_round():
    nodes, shards = feed_forward(0, 96)

    first, exchange, last = spread_over(nodes, shards).steps

    assert ops(first) == [[], [Op.MUL_MAT, Op.MUL_MAT, Op.GLU, Op.MUL_MAT]]
    assert [(move.source, move.target) for move in exchange.moves] == [(1, 0)]
    assert all(move.sent is move.received is nodes[-2] for move in exchange.moves)
    assert last.nodes == ((nodes[-1],), (nodes[-1],))


def test_without_shards_every_member_computes_the_nodes_themselves():
    nodes, _ = feed_forward(32, 64)

    (stage,) = spread_over(nodes, {}).steps

    assert stage.nodes == (tuple(nodes), tuple(nodes))


def test_a_result_read_outside_is_gathered_where_it_was_planned():
    x, weight = leaf(8, N_TOKENS), leaf(8, 96)
    product = build.mul_mat(weight, x)
    scaled = build.scale(product, 2.0)

    steps = spread_over(
        [product, scaled], {weight: shard_along(1, (32, 64))}, read_outside=[product]
    ).steps

    assert [type(step) for step in steps] == [Stage, Exchange, Stage]
    assert ops(steps[0]) == [[Op.MUL_MAT, Op.CPY]] * 2
    for own in steps[2].nodes:
        *copies, last = own
        assert [copy.view_src for copy in copies] == [product, product]
        assert [copy.view_offs for copy in copies] == [0, 32 * 4]
        assert [copy.nb for copy in copies] == [product.nb] * 2
        assert last is scaled


@pytest.mark.parametrize("flags", [Flag.COMPUTE, Flag.COMPUTE | Flag.OUTPUT])
def test_outputs_and_results_that_nobody_reads_are_gathered(flags):
    x, weight = leaf(8, N_TOKENS), leaf(8, 96)
    product = build.mul_mat(weight, x)
    product.flags = flags
    readers = [build.scale(product, 2.0)] if flags & Flag.OUTPUT else []

    steps = spread_over([product, *readers], {weight: shard_along(1, (32, 64))}).steps

    assert any(isinstance(step, Exchange) for step in steps)


def test_a_product_of_divided_rows_takes_what_another_rule_left_divided():
    """A norm over divided channels is computed from whole rows; the next product divides again."""
    x, weight, after = leaf(8, N_TOKENS), leaf(8, 96), leaf(96, 64)
    product = build.mul_mat(weight, x)
    norm = build.rms_norm(product, 1e-6)
    out = build.mul_mat(after, norm)
    shards = {weight: shard_along(1, (32, 64)), after: shard_along(0, (32, 64))}

    steps = spread_over([product, norm, out], shards).steps

    computed = [node.op for step in steps if isinstance(step, Stage) for node in step.nodes[0]]
    assert computed == [Op.MUL_MAT, Op.CPY, Op.CPY, Op.CPY, Op.RMS_NORM, Op.MUL_MAT, Op.ADD]
    norms = [n for s in steps if isinstance(s, Stage) for n in s.nodes[1] if n.op is Op.RMS_NORM]
    assert norms == [norm]


def test_parts_are_not_written_over_parts_that_others_still_read():
    """W x + y, written over y: in parts, member 1 would read y where member 0's result goes."""
    x, y, weight = leaf(8, N_TOKENS), leaf(64, N_TOKENS), leaf(8, 64)
    product = build.mul_mat(weight, x)
    total = build.add(y, product)
    shards = {weight: shard_along(1, (32, 32))}

    apart = spread_over([product, total], shards).steps
    over = spread_over(
        [product, total], shards, are_one=lambda node, source: (node, source) == (total, y)
    ).steps

    sums = [[n for step in steps if isinstance(step, Stage) for n in step.nodes[1]
             if n.op is Op.ADD] for steps in (apart, over)]  # fmt: skip
    assert [[node.ne[0] for node in own] for own in sums] == [[32], [64]]
    assert sums[1] == [total]


def test_views_of_parts_lie_in_the_parts():
    """Heads of the second member begin at the start of its memory."""
    x, weight = leaf(8, N_TOKENS), leaf(8, 48)
    heads = build.reshape(build.mul_mat(weight, x), 16, 3, N_TOKENS)
    out = build.rms_norm(build.permute(heads, (0, 2, 1, 3)), 1e-6)

    made = spread_over(ordered(out), {weight: shard_along(1, (16, 32))})

    norms = [own[1] for own in made.steps[0].nodes]
    assert [node.ne for node in norms] == [(16, 3, 1, 1), (16, 3, 2, 1)]
    assert [node.src[0].nb for node in norms] == [(4, 64, 64, 192), (4, 128, 64, 384)]
    assert [node.src[0].view_offs for node in norms] == [0, 0]


def test_a_part_of_what_members_have_whole_is_a_view():
    x, weight, bias = leaf(8, N_TOKENS), leaf(8, 48), leaf(48)
    out = build.add(build.mul_mat(weight, x), bias)

    made = spread_over(ordered(out), {weight: shard_along(1, (16, 32))})

    sources = [own[1].src[1] for own in made.steps[0].nodes]
    assert [(source.view_src, source.view_offs, source.ne[0]) for source in sources] == [
        (bias, 0, 16),
        (bias, 64, 32),
    ]


def test_what_needs_a_divided_weight_whole_is_refused_by_name():
    weight = leaf(32, 8, name="blk.0.odd.weight")
    out = build.rms_norm(weight, 1e-6)
    out.name = "odd_norm"

    with pytest.raises(PlacementError) as caught:
        spread_over([out], {weight: shard_along(0, (16, 16))})

    assert caught.value.title == "-sm tensor cannot share RMS_NORM odd_norm of this model."
    assert "blk.0.odd.weight, of shape [32, 8, 1, 1]" in caught.value.sentence
    assert caught.value.hint == "Choose -sm layer."


def test_rows_for_a_cache_that_every_member_has_whole_are_gathered_first():
    cache, x, weight, ids = leaf(48, 16), leaf(8, N_TOKENS), leaf(8, 48), leaf(N_TOKENS)
    written = build.set_rows(cache, build.mul_mat(weight, x), ids)

    for shard in (shard_along(1, (16, 32)), one_of(0, 2)):
        steps = spread_over(ordered(written), {weight: shard}).steps

        assert any(isinstance(step, Exchange) for step in steps)
        assert [nodes[-1] for nodes in steps[-1].nodes] == [written] * 2
