"""The columns come from the graph, so every architecture has some, and none is a special case."""

import numpy as np
import pytest

from app.views.graph.block import block_of
from app.views.graph.columns import shape_of
from app.views.graph.layout import Viewport, layout_of
from tests.app.views.graph.recorded_graphs import recorded_names, recorded_plan

pytestmark = pytest.mark.big_set


def test_in_every_architecture_a_layers_cells_stand_in_execution_order():
    for name in recorded_names():
        plan, n_layers = recorded_plan(name)

        shape = shape_of(plan, n_layers)

        assert shape.n_cells == plan.n_computed, name
        for row in range(1, n_layers + 1):
            column = shape.column[shape.cells_of_row(row)]
            assert (np.diff(column) > 0).all(), (name, row)


def test_in_every_architecture_groups_cover_all_columns():
    for name in recorded_names():
        shape = shape_of(*recorded_plan(name))

        covered = [i for group in shape.groups for i in range(group.start, group.stop)]

        assert covered == list(range(len(shape.columns))), name


def test_groups_are_named_after_what_mixes_tokens():
    titles = {
        name: [group.title for group in shape_of(*recorded_plan(name)).groups]
        for name in ("gemma3.fa1", "gpt-oss.fa0", "falcon-h1.fa1", "mamba.fa1")
    }

    assert titles == {
        "gemma3.fa1": ["attention", "feed-forward"],
        "gpt-oss.fa0": ["attention", "feed-forward"],
        "falcon-h1.fa1": ["attention, recurrent", "feed-forward"],
        "mamba.fa1": ["recurrent"],
    }


def test_every_layer_of_every_architecture_can_be_opened():
    for name in recorded_names():
        plan, n_layers = recorded_plan(name)
        shape = shape_of(plan, n_layers)
        for row in range(1, n_layers + 1):
            cells = shape.cells_of_row(row)
            block = block_of(plan, shape.node_id[cells].tolist())

            layout = layout_of(shape, Viewport(916, 724, open_row=row), block)

            assert len(set(zip(block.ranks, block.lanes, strict=True))) == len(cells), name
            assert layout.opened is not None, name
            assert all(
                block.ranks[edge.source] < block.ranks[edge.target]
                for edge in block.edges
                if edge.source >= 0
            ), name
            inside = layout.opened.rects
            assert (inside[:, 1] >= layout.opened.top).all(), name
            assert (inside[:, 1] + inside[:, 3] <= layout.opened.top + layout.opened.height).all()
