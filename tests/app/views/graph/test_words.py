import numpy as np
import pytest

from app.theme.text import MINUS, bytes_text
from app.views.graph.columns import shape_of
from app.views.graph.placed import changed, placed
from app.views.graph.words import (
    EN_DASH,
    cell_tip,
    fact_text,
    nodes_text,
    row_text,
    size_range,
    size_text,
)
from tests.app.models.paper_run import plans, plans_with_another_gpu


@pytest.mark.parametrize(
    ("n_bytes", "side", "text"),
    [
        (40, 0, "40B"),
        (2304, 0, "2K"),
        (540 * 1024, 0, "540K"),
        (1152 * 1024, 0, "1.1M"),
        (3 * 2**30, 0, "3.0G"),
        (540 * 1024, -1, f"{MINUS}540K"),
        (540 * 1024, 1, "+540K"),
    ],
)
def test_sizes_are_four_characters_or_so(n_bytes, side, text):
    assert size_text(n_bytes, side) == text


def test_the_title_says_which_plan_is_shown():
    plan = plans().prompt

    def fact(plan, ran=False, difference=False, open_layer=""):
        return fact_text(plan, ran=ran, difference=difference, open_layer=open_layer)

    assert fact(plan, open_layer="layer 0") == "prompt 512 · a row a layer, layer 0 open"
    assert fact(plans().token) == "one token · a row a layer"
    assert fact(plan, ran=True) == "the prompt batch that ran: 512 tokens · 321 splits"
    assert fact(plan, difference=True) == "prompt 512 · difference"


def test_views_are_never_counted_silently():
    assert nodes_text(plans().prompt) == "936 nodes: 576 compute, 360 views"


def test_a_cell_says_what_it_is_and_why_it_is_there():
    plan = plans().prompt
    shape = shape_of(plan, 30)

    lines = cell_tip(shape, placed(plan, shape), None, shape.cell_of_node(12)).split("\n")

    assert lines[0] == "cache_k_l0 (view)  #12"
    assert lines[1].startswith("SET_ROWS · f16 [192, 512] · 192")
    assert lines[2] == "CPU · 1.dst · split 6"
    assert lines[3] == f"{bytes_text(768 * 1024)} copied in before it"


def test_a_moved_cell_says_where_it_was():
    plan = plans(op_offload=False).prompt
    shape = shape_of(plan, 30)
    now = placed(plan, shape)

    tip = cell_tip(shape, now, changed(plans().prompt, now, shape), shape.cell_of_node(3))

    assert "was on OpenCL0" in tip
    assert f"gone before it: a cut, {bytes_text(204 * 1024)} copied" in tip


def test_a_row_says_its_splits_and_bytes():
    plan = plans().prompt
    shape = shape_of(plan, 30)

    assert row_text(shape, placed(plan, shape), 3) == (
        f"layer 2: 11 splits begin here, {bytes_text(3_396_096)} copied"
    )


def test_a_range_has_its_unit_once():
    assert size_range(2**21, 2**21) == bytes_text(2**21)
    assert size_range(2**21, 2**22) == f"2.00{EN_DASH}{bytes_text(2**22)}"
    assert size_range(2**10, 2**22).split(EN_DASH)[0] == bytes_text(2**10)


def test_a_cell_of_a_device_that_is_gone_says_so():
    plan = plans().prompt
    shape = shape_of(plan, 30)
    now = placed(plan, shape)
    before = plans_with_another_gpu().prompt
    change = changed(before, now, shape)
    cell = int(np.flatnonzero(change.moved & (change.was_device >= len(plan.devices)))[0])

    assert "was on a device that is gone" in cell_tip(shape, now, change, cell)
