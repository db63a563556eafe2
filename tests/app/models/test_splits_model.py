import pytest
from PySide6.QtCore import Qt

from app.models.split_times import split_times
from app.models.splits_model import BACKEND_ROLE, LARGE_ROLE, SplitsModel
from app.models.splits_rows import Column
from tests.app.models import paper_run
from tests.engine.sched.expert_run import expert_run

TOOLTIP = Qt.ItemDataRole.ToolTipRole


@pytest.fixture
def model(qtmodeltester):
    model = SplitsModel()
    qtmodeltester.check(model)
    model.set_plan(paper_run.plans().prompt)
    return model


@pytest.fixture
def times():
    plan_set = paper_run.plans()
    return split_times(paper_run.run_on_paper(plan_set).spans(), plan_set.prompt)


def text(model, row, column):
    return model.index(row, column).data()


def test_the_model_keeps_qts_contract_folded_sorted_and_empty(qtmodeltester, model, times):
    model.set_times(times)
    model.sort(Column.NAME)
    model.sort(Column.ID)
    model.toggle(13)

    qtmodeltester.check(model)
    model.set_plan(None)


def test_alike_layers_are_one_line(model):
    assert model.rowCount() == 15
    assert text(model, 13, Column.ID) == "… 307 more, 11 a layer"
    assert text(model, 14, Column.ID) == "320"


def test_a_folded_line_spreads_out_and_folds_again(model):
    model.toggle(13)
    assert model.rowCount() == 322
    assert text(model, 13, Column.ID) == "307 alike, 11 a layer: fold"

    model.toggle(13)
    assert model.rowCount() == 15


def test_a_pinned_split_keeps_its_row_inside_a_fold(model):
    model.pin(99)

    texts = [text(model, row, Column.ID) for row in range(13, model.rowCount())]

    assert texts == ["… 86 more, 11 a layer", "99", "… 220 more, 11 a layer", "320"]
    assert model.row_of(99) == 14


def test_columns_say_what_the_split_is(model):
    row = [text(model, 6, column) for column in (Column.ID, Column.NAME, Column.NODES, Column.KIB)]

    assert row == ["6", "cache_k_l0 (view) +1", "9", "768"]
    assert model.index(6, Column.DEVICE).data(BACKEND_ROLE) == 1


def test_a_split_into_which_nothing_is_copied_has_a_dash(model):
    assert text(model, 0, Column.KIB) == "\u2013"


def test_only_large_copies_are_marked(model):
    assert model.index(6, Column.KIB).data(LARGE_ROLE)
    assert not model.index(2, Column.KIB).data(LARGE_ROLE)
    assert not model.index(6, Column.NODES).data(LARGE_ROLE)


def test_there_is_no_time_column_before_a_run(model):
    assert model.columnCount() == Column.MS


def test_times_add_a_column_and_sort_slowest_first(model, times):
    model.set_times(times)

    figures = [float(text(model, row, Column.MS)) for row in range(model.rowCount())]

    assert model.rowCount() == 321
    assert figures == sorted(figures, reverse=True)
    assert model.order_words == "slowest first"


def test_new_times_of_the_same_run_keep_the_order_a_person_chose(model, times):
    model.set_times(times)
    model.sort(Column.KIB, Qt.SortOrder.DescendingOrder)

    model.set_times(times)

    assert model.order_words == "by KiB, falling"


def test_without_times_again_the_table_is_in_order(model, times):
    model.set_times(times)

    model.set_times(None)

    assert model.order_words == "sorted by order"
    assert model.rowCount() == 15


def test_the_header_names_each_unit_once(model, times):
    model.set_times(times)

    titles = [model.headerData(i, Qt.Orientation.Horizontal) for i in range(model.columnCount())]

    assert titles == ["#", "", "first node", "nodes", "in, KiB", "ms"]


def test_sorting_by_name_and_device_gives_every_split_once(model):
    for column in (Column.NAME, Column.DEVICE, Column.NODES):
        model.sort(column)
        ids = {model.row(row).split_id for row in range(model.rowCount())}
        assert ids == set(range(321))


def test_the_tooltip_of_a_folded_line_says_what_opens_it(model):
    assert "Enter or a click shows them" in model.index(13, Column.ID).data(TOOLTIP)


def test_bytes_are_the_planned_ones_and_the_header_says_so_of_experts(qapp):
    table, recorder = expert_run((7, 1))
    model = SplitsModel()
    model.set_plan(table)
    dense = SplitsModel()
    dense.set_plan(paper_run.plans().prompt)

    model.set_times(split_times(recorder.snapshot().spans(), table))

    row = model.row_of(1)
    assert model.data(model.index(row, Column.KIB)) == "32"
    assert "Measured: " in model.data(model.index(row, 0), TOOLTIP)
    tips = [m.headerData(Column.KIB, Qt.Orientation.Horizontal, TOOLTIP) for m in (model, dense)]
    assert tips[0] == f"{tips[1]}; of experts only used ones, counted whole here"
