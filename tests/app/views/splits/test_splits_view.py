import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF

from app.models.cells import LOOK_ROLE
from app.models.links_model import LinkColumn
from app.models.splits_rows import Column
from app.state.app_state import AppState, DiffMode, Selection
from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.theme.theme import Theme, ThemeChoice
from app.views import splits
from app.views.splits.delegate import PAD_PX, fitting_name
from app.views.splits.view import LEAST_TABLE_PX, n_gpus
from tests.app.models import paper_pipeline, paper_run


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_plans(paper_run.plans())
    return state


@pytest.fixture
def view(qtbot, state):
    view = splits.make(state, Theme(ThemeChoice.LIGHT))
    qtbot.addWidget(view)
    view.resize(264, 340)
    view.show()
    return view


def selected_split(view):
    return view.model.row(view.table.currentIndex().row()).split_id


def test_a_row_selects_its_split_and_the_first_computed_node(view, state):
    view.table.setCurrentIndex(view.model.index(8, Column.ID))

    assert state.selection.split_id == 8
    assert state.selection.node.name == "attn_out-0"


def test_a_selection_from_elsewhere_is_shown_even_where_it_was_folded(view, state):
    state.select(Selection(split_id=99))

    assert selected_split(view) == 99
    assert view.table.selectedIndexes()


def test_showing_a_selection_does_not_select_again(view, state, qtbot):
    node = state.shown_plan.key(state.shown_plan.node_ids().__len__() - 1)

    state.select(Selection(node=node, split_id=320))

    assert state.selection.node == node


def test_getting_the_focus_selects_nothing(view, state):
    view.table.setFocus()

    assert state.selection == Selection()


def test_a_click_on_a_folded_line_spreads_it_out_and_selects_nothing(view, state):
    view.table.clicked.emit(view.model.index(13, Column.ID))

    assert view.model.rowCount() == 322
    assert state.selection == Selection()


def test_enter_spreads_out_a_folded_line(view, qtbot):
    from PySide6.QtCore import Qt

    view.table.setCurrentIndex(view.model.index(13, Column.ID))

    qtbot.keyClick(view.table, Qt.Key.Key_Return)

    assert view.model.rowCount() == 322


def test_a_run_sorts_slowest_first_and_adds_a_column(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))

    qtbot.waitUntil(lambda: view.model.times is not None)

    assert view.dock_title.right == "slowest first"
    assert not view.table.isColumnHidden(Column.MS)


def test_times_that_arrive_show_the_slowest_and_not_the_selected_split(view, state, qtbot):
    state.select(Selection(split_id=0))

    state.set_trace(paper_run.run_on_paper(paper_run.plans(), 3))
    qtbot.waitUntil(lambda: view.model.times is not None)

    assert selected_split(view) == 0
    assert view.model.row_of(0) > 20
    assert view.table.verticalScrollBar().value() == 0
    assert view.table.rowAt(0) == 0


def test_nodes_give_way_to_names_where_the_table_is_narrow(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    qtbot.waitUntil(lambda: view.model.times is not None)

    view.resize(220, 340)
    assert view.table.isColumnHidden(Column.NODES)

    view.resize(420, 340)
    assert not view.table.isColumnHidden(Column.NODES)


def test_the_title_says_how_many_there_are_and_were(view, state):
    assert view.dock_title.fact == "321"

    after = paper_run.plans(op_offload=False)
    state.set_plans(after)
    state.set_diff(DiffMode(paper_run.plans(), after, "op_offload"))

    assert view.dock_title.fact == "2, were 321"


def test_a_header_sorts_figures_falling_first_and_names_rising(view):
    view.table.horizontalHeader().sectionClicked.emit(Column.KIB)
    assert view.model.order_words == "by KiB, falling"

    view.table.horizontalHeader().sectionClicked.emit(Column.NAME)
    assert view.model.order_words == "by first node"


def test_without_a_plan_it_says_what_to_do(qtbot):
    view = splits.make(AppState(), Theme(ThemeChoice.DARK))
    qtbot.addWidget(view)
    view.show()

    assert not view.table.isVisible()
    assert view.dock_title.fact == ""


def test_it_paints_in_both_themes(view, state):
    state.select_node(12)
    light = view.grab().toImage()

    view._theme.choose(ThemeChoice.DARK)

    assert view.grab().toImage() != light


@pytest.mark.parametrize("width", [220, 264, 300, 380])
def test_no_head_and_no_figure_is_clipped(view, width):
    view.resize(width, 340)
    table, mono = view.table, QFontMetrics(fixed_font(SMALL_PX))
    heads = QFontMetrics(general_font(TINY_PX))

    for column in (Column.ID, Column.NODES, Column.KIB):
        if table.isColumnHidden(column):
            continue
        cells = [view.model.index(row, column).data() or "" for row in range(view.model.rowCount())
                 if not view.model.row(row).is_group]  # fmt: skip
        room = table.columnWidth(column) - 2 * PAD_PX
        head = view.model.headerData(column, Qt.Orientation.Horizontal)
        assert max(mono.horizontalAdvance(text) for text in cells) <= room
        assert heads.horizontalAdvance(head) <= table.columnWidth(column) - 8


def test_a_name_loses_that_it_is_a_view_before_it_loses_its_middle(qapp):
    metrics = QFontMetricsF(general_font(SMALL_PX))
    room = metrics.horizontalAdvance("cache_k_l0 +1")

    assert fitting_name("cache_k_l0 (view) +1", metrics, room) == "cache_k_l0 +1"
    assert fitting_name("cache_k_l0 (view) +1", metrics, 2 * room) == "cache_k_l0 (view) +1"
    assert "…" in fitting_name("cache_k_l0 (view) +1", metrics, room - 10)


def test_with_one_gpu_there_is_no_table_of_links(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    qtbot.waitUntil(lambda: view.model.times is not None)

    assert not view.links.isVisible()


def test_in_a_low_pane_the_links_scroll_before_the_splits_go(view, state, qtbot):
    state.set_plans(paper_pipeline.plans())
    state.set_trace(paper_pipeline.run_on_paper(4))
    qtbot.waitUntil(view.links.isVisible)
    view.resize(264, 600)
    qtbot.waitUntil(lambda: view.links.height() == view.links.maximumHeight())
    assert view.links.verticalScrollBar().maximum() == 0

    view.resize(264, 122)
    qtbot.waitUntil(lambda: view.links.height() < view.links.maximumHeight())

    assert view.links.geometry().bottom() < 122
    assert view.table.height() >= LEAST_TABLE_PX
    assert view.links.verticalScrollBar().maximum() > 0

    view.resize(210, 122)
    columns_px = [view.links.columnWidth(column) for column in LinkColumn]
    assert sum(columns_px) <= view.links.viewport().width()


def test_with_several_gpus_the_links_of_the_run_stand_below_the_splits(view, state, qtbot):
    state.set_plans(paper_pipeline.plans())

    state.set_trace(paper_pipeline.run_on_paper(4))
    qtbot.waitUntil(view.links.isVisible)

    rows = range(view.links_model.rowCount())
    role = Qt.ItemDataRole.AccessibleTextRole
    ends = [[view.links_model.index(row, c).data(role) for c in (0, 1)] for row in rows]
    assert ["OpenCL0", "OpenCL1"] in ends
    assert view.links.height() < view.table.height()

    state.set_trace(None)
    qtbot.waitUntil(lambda: not view.links.isVisible())


def test_where_there_is_no_room_for_both_names_the_source_gives_way_to_its_badge(
    view, state, qtbot
):
    state.set_plans(paper_pipeline.plans())
    state.set_trace(paper_pipeline.run_on_paper(4))
    qtbot.waitUntil(view.links.isVisible)
    source = view.links_model.index(0, LinkColumn.SOURCE)

    view.resize(500, 340)
    roomy = source.data()
    view.resize(250, 340)

    assert roomy == "OpenCL0"
    assert source.data() == ""
    assert source.data(Qt.ItemDataRole.AccessibleTextRole) == "OpenCL0"
    assert view.links_model.index(0, LinkColumn.TARGET).data() == "OpenCL1"
    assert sum(view.links.columnWidth(c) for c in LinkColumn) == view.links.viewport().width()


def test_in_the_narrowest_dock_badges_stand_for_both_devices(view, state, qtbot):
    state.set_plans(paper_pipeline.plans())
    state.set_trace(paper_pipeline.run_on_paper(4))
    qtbot.waitUntil(view.links.isVisible)

    view.resize(200, 340)

    shown = [view.links_model.index(0, column).data() for column in LinkColumn]
    assert shown[:2] == ["", ""]
    assert view.links_model.index(0, 1).data(LOOK_ROLE).letter == "H"
    assert sum(view.links.columnWidth(c) for c in LinkColumn) == view.links.viewport().width()


def test_devices_that_are_joined_count_one_by_one():
    assert n_gpus(paper_pipeline.joined_plans().prompt) == 2
    assert n_gpus(paper_run.plans().prompt) == 1
