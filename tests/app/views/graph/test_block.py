from app.views.graph.block import INPUT, block_of
from app.views.graph.columns import shape_of
from app.views.graph.names import TIMES
from tests.app.models.paper_run import plans


def layer(row):
    plan = plans().prompt
    shape = shape_of(plan, 30)
    cells = shape.cells_of_row(row)
    block = block_of(plan, shape.node_id[cells].tolist())
    return block, [shape.heads[cell].name for cell in cells]


def test_the_layer_stands_as_the_design_draws_it():
    """
    Q rope                         gate
    norm w V    v→KV attn out + norm w up glu down +
    K rope k→KV
    """
    block, names = layer(1)

    at = {
        (rank, lane): name for rank, lane, name in zip(block.ranks, block.lanes, names, strict=True)
    }
    assert [at.get((rank, -1)) for rank in (2, 3, 10)] == ["Q", "rope", "gate"]
    assert [at.get((rank, 1)) for rank in (2, 3, 4)] == ["K", "rope", "k→KV"]
    trunk = " ".join(at.get((rank, 0), ".") for rank in range(14))
    weight = f"{TIMES}w"
    assert trunk == f"norm {weight} V . v→KV attn out + norm {weight} up glu down +"
    assert (block.n_ranks, block.first_lane, block.last_lane) == (14, -1, 1)


def test_attention_depends_on_what_was_written_to_the_cache():
    block, names = layer(1)

    attn = names.index("attn")
    sources = {names[edge.source] for edge in block.edges if edge.target == attn}
    assert sources == {"rope", "k→KV", "v→KV"}


def test_only_the_two_residuals_pass_by_other_nodes():
    block, names = layer(1)

    residuals = [(edge.source, names[edge.target]) for edge in block.edges if edge.residual]
    assert residuals == [(INPUT, "+"), (names.index("+"), "+")]


def test_no_two_nodes_share_a_place():
    for row in (1, 30):
        block, names = layer(row)

        assert len(set(zip(block.ranks, block.lanes, strict=True))) == len(names)
