import numpy as np
import pytest

from app.views.layers.strip import cell_text, cells_of, labelled, strip_layout
from tests.app.models.paper_run import plans, small_plans

DEVICES = ("OpenCL0", "CPU")


def test_a_cell_counts_where_its_operations_run_and_its_weights_are():
    cells = cells_of(plans().prompt, plans())

    assert [cell.label for cell in (cells[0], cells[1], cells[30], cells[31])] == [
        "in", "0", "29", "out",
    ]  # fmt: skip
    assert cells[1].operations == (25, 6)
    assert [cells[i].weights for i in (0, 1, 30, 31)] == [1, 1, 0, 0]
    assert sum(cell.n_operations for cell in cells) == 936


def test_the_first_node_of_a_layer_computes():
    plan = plans().prompt
    cells = cells_of(plan, plans())

    names = [plan.name[plan.slot(cells[i].first_node)] for i in (0, 1, 5, 31)]

    assert names == ["embd", "norm-0", "norm-4", "norm"]


def test_a_difference_counts_what_moved():
    cells = cells_of(plans(op_offload=False).prompt, plans(op_offload=False), plans())

    assert sum(cell.moved for cell in cells) == 724
    assert not any(cell.weights_moved for cell in cells)


def test_a_difference_shows_weights_that_moved():
    cells = cells_of(small_plans().prompt, small_plans(), plans())

    assert [cell.label for cell in cells if cell.weights_moved] == [str(i) for i in range(29)]


def test_a_cell_in_words():
    cells = cells_of(plans().prompt, plans())

    assert cell_text(cells[1], DEVICES) == (
        "layer 0: 25 of 31 operations on OpenCL0, 6 on CPU; weights on CPU"
    )
    assert cell_text(cells[0], DEVICES) == "in: 1 operation on CPU; weights on CPU"


@pytest.mark.parametrize(
    ("n_layers", "n_lines"), [(4, 1), (14, 1), (30, 2), (46, 3), (64, 4), (126, 4)]
)
def test_rows_of_16_and_four_rows_from_64_layers(n_layers, n_lines):
    layout = strip_layout(n_layers + 2, 264)

    assert len(np.unique(layout.rects[:, 1])) == n_lines


def test_32_cells_are_about_15_px_wide_in_a_dock_of_264():
    layout = strip_layout(32, 264)

    assert 13.5 <= layout.rects[0, 2] <= 18
    assert layout.rects[:, 0].max() + layout.rects[0, 2] <= 264 - 11


def test_above_128_layers_columns_are_4_px_wide():
    layout = strip_layout(206, 264)

    assert set(layout.rects[:, 2]) == {4.0}


@pytest.mark.parametrize("n_layers", [1, 30, 80, 204])
def test_every_cell_is_found_under_its_middle(n_layers):
    layout = strip_layout(n_layers + 2, 264)

    middles = layout.rects[:, :2] + layout.rects[:, 2:] / 2
    assert [layout.cell_at(*xy) for xy in middles.tolist()] == list(range(n_layers + 2))


def test_numbers_stand_under_every_fifth_layer():
    layout = strip_layout(32, 264)

    assert [i - 1 for i in range(32) if labelled(i, 32, layout)] == [-1, 0, 5, 10, 15, 20, 25, 30]
