import numpy as np
import pytest

from app.views.graph.block import block_of
from app.views.graph.columns import shape_of
from app.views.graph.layout import HEADS_PX, LEFT_PX, Detail, Viewport, detail_of, layout_of
from tests.app.models.paper_run import plans

SMALL, LARGE = (668, 463), (916, 724)


def shape():
    return shape_of(plans().prompt, 30)


def block(row=1):
    cells = shape()
    return block_of(plans().prompt, cells.node_id[cells.cells_of_row(row)].tolist())


def laid_out(size, open_row):
    drawing = block(open_row) if open_row > 0 else None
    return layout_of(shape(), Viewport(*size, open_row=open_row), drawing)


@pytest.mark.parametrize(
    ("row_px", "detail"),
    [
        (4.9, Detail.SPLITS),
        (5, Detail.CELLS),
        (11.9, Detail.CELLS),
        (12, Detail.NUMBERS),
        (14, Detail.LETTERS),
        (24, Detail.NAMES),
    ],
)
def test_detail_follows_the_row_height(row_px, detail):
    assert detail_of(row_px) is detail


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("open_row", [-1, 1, 30])
def test_everything_fits_at_zoom_one(size, open_row):
    layout = laid_out(size, open_row)

    rects = layout.rects
    assert (rects[:, 0] >= LEFT_PX).all()
    assert (rects[:, 1] >= HEADS_PX).all()
    assert (rects[:, 0] + rects[:, 2] <= size[0]).all()
    assert (rects[:, 1] + rects[:, 3] <= size[1]).all()


@pytest.mark.parametrize("open_row", [-1, 1])
def test_no_two_cells_overlap(open_row):
    layout = laid_out(SMALL, open_row)

    x0, y0 = layout.rects[:, 0] + 0.01, layout.rects[:, 1] + 0.01
    x1, y1 = x0 + layout.rects[:, 2] - 0.02, y0 + layout.rects[:, 3] - 0.02
    meet = (x0[:, None] < x1) & (x0 < x1[:, None]) & (y0[:, None] < y1) & (y0 < y1[:, None])
    assert meet.sum() == len(x0)


def test_an_opened_layer_is_at_most_160_px_high_and_its_nodes_20_to_22():
    layout = layout_of(shape(), Viewport(*SMALL, open_row=1), block())

    assert layout.opened is not None
    assert 112 <= layout.opened.height <= 160
    assert (layout.opened.rects[:, 3] >= 20).all()
    assert (layout.opened.rects[:, 3] <= 22).all()


def test_the_opened_layer_closes_where_rows_would_be_under_5_px():
    layout = layout_of(shape(), Viewport(668, 300, open_row=1), block())

    assert layout.opened is None
    assert layout.row_px >= 4


def test_the_cell_under_its_own_middle_is_found():
    cells = shape()
    layout = layout_of(cells, Viewport(*SMALL, open_row=1), block())

    middles = layout.rects[:, :2] + layout.rects[:, 2:] / 2
    found = [layout.cell_at(cells, x, y) for x, y in middles.tolist()]

    assert found == list(range(cells.n_cells))


def test_nothing_is_under_the_heads_or_the_labels():
    layout = layout_of(shape(), Viewport(*SMALL))

    assert layout.cell_at(shape(), 200, HEADS_PX - 1) == -1
    assert layout.cell_at(shape(), LEFT_PX - 10, 200) == -1


def test_zoom_widens_cells_and_panning_stays_inside():
    near = layout_of(shape(), Viewport(*SMALL, zoom=8, x=1e9, y=1e9))

    assert near.detail is Detail.NAMES
    inside = shape().row == 30
    right = (near.rects[inside, 0] + near.rects[inside, 2]).max()
    assert right == pytest.approx(near.matrix_right, abs=1)
    assert near.rects[:, 1].max() + 14 <= SMALL[1]


def test_matrix_products_are_twice_as_wide_and_cuts_have_a_gap_of_4():
    layout = layout_of(shape(), Viewport(*LARGE))

    words = [column.head.word for column in shape().columns]
    wide, plain = layout.column_w[words.index("Q")], layout.column_w[words.index("norm")]
    assert wide / plain == pytest.approx(2.1)
    assert layout.gap_before[words.index("Q")] == 4
    assert np.isclose(layout.column_w[words.index("rows")] / plain, 0.6)
