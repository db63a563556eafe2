"""SplitsView: the split table, tied to the selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QLabel,
    QSizePolicy,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.models.dock_title import DockTitle
from app.models.links_model import LinkColumn, LinksModel
from app.models.plan_words import first_computed
from app.models.split_times import split_times
from app.models.splits_model import SplitsModel
from app.models.splits_rows import Column
from app.state.app_state import Selection
from app.theme.colours import device_style, lane_looks
from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.theme.text import KIB, count
from app.views.splits.delegate import PAD_PX, ROW_PX, SplitDelegate
from app.views.table import HEADER_PX, RowsTable
from engine.core.devices import DeviceType
from engine.core.summary import RunState
from engine.trace.links import links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtCore import QEvent

    from app.state.app_state import AppState
    from app.theme.theme import Theme
    from engine.core.table import PlanTable
    from engine.trace.links import Link

TIMES_EVERY_MS = 500
MAX_LIVE_SPANS = 200_000
"""Above this a running trace is not summed up before it ends: it would take the GUI's time."""

NAME_MIN_PX = {Column.NODES: 88, Column.KIB: 80}
"""A column gives way where names would have less than this."""

MEASURED_NAME_PX = 100
"""The same after a run: the slowest splits are looked for by name, and their ms say the rest."""

BADGE_COLUMN_PX = 30
"""The narrowest column of badges: its head gives way before figures do."""

LEAST_TABLE_PX = 72
"""A head and two rows: the links below scroll before there is less."""

_SAMPLES = {Column.ID: "888", Column.NODES: "888", Column.KIB: "8 888", Column.MS: "888.88"}


class SplitsView(QWidget):
    """The table with its empty state. `dock_title` says what the dock's title bar shows."""

    dock_title_changed = Signal(object)

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("splits")
        self._state, self._theme = state, theme
        self._syncing = False
        self.model = SplitsModel(self)
        self._order = (self.model.column, self.model.descending)
        self.table = SplitTable(theme, self)
        self.table.setModel(self.model)
        self.table.setMinimumHeight(LEAST_TABLE_PX)
        self.links_model = LinksModel(self)
        self.links = LinksTable(theme, self.links_model, self)
        self._empty = QLabel("Open a model to see its splits.", self)
        self._empty.setProperty("role", "muted")
        self._empty.setMargin(12)
        self.setProperty("role", "sheet")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._empty)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.links)
        layout.setAlignment(self._empty, Qt.AlignmentFlag.AlignTop)
        self._times_timer = QTimer(self)
        self._times_timer.setSingleShot(True)
        self._times_timer.setInterval(TIMES_EVERY_MS)
        self._connect()
        self._on_plan(state.shown_plan)

    @property
    def dock_title(self) -> DockTitle:
        """What the dock's title bar shows."""
        plan = self.model.plan
        if plan is None:
            return DockTitle("Splits")
        fact = count(len(plan.splits))
        diff = self._state.diff
        if diff is not None:
            fact += f", were {count(len(diff.was.plan(plan.batch).splits))}"
        return DockTitle("Splits", fact, self.model.order_words)

    def _connect(self) -> None:
        state = self._state
        state.shown_plan_changed.connect(self._on_plan)
        state.selection_changed.connect(self._on_selection)
        state.trace_changed.connect(self._on_trace)
        state.run_changed.connect(self._on_run)
        state.diff_changed.connect(self._on_diff)
        self._theme.changed.connect(self._on_theme)
        self._times_timer.timeout.connect(self._read_times)
        self.model.modelReset.connect(self._on_reset)
        self.table.selectionModel().selectionChanged.connect(self._on_rows)
        self.table.clicked.connect(self._on_clicked)
        self.table.group_activated.connect(self.model.toggle)
        self.table.horizontalHeader().sectionClicked.connect(self._on_header)

    def _on_plan(self, plan: PlanTable | None) -> None:
        self.model.set_plan(plan)
        self.table.setVisible(plan is not None)
        self._empty.setVisible(plan is None)
        self._read_times()

    def _on_trace(self, _trace: object) -> None:
        if not self._times_timer.isActive():
            self._times_timer.start()

    def _on_run(self, _run: object) -> None:
        if self._state.run.state is RunState.IDLE:
            self._on_trace(None)

    def _read_times(self) -> None:
        trace, plan = self._state.trace, self.model.plan
        running = self._state.run.state is not RunState.IDLE
        if trace is None or plan is None:
            self.model.set_times(None)
            self._show_links(plan, ())
        elif not (running and trace.n_spans > MAX_LIVE_SPANS):
            spans = trace.spans()
            self.model.set_times(split_times(spans, plan))
            self._show_links(plan, links(spans) if n_gpus(plan) > 1 else ())

    def _show_links(self, plan: PlanTable | None, found: Sequence[Link]) -> None:
        """The links of the run, where there are several devices to tell apart."""
        devices = () if plan is None else plan.devices
        self.links_model.set_links(found, lane_looks(self._theme.palette, devices))
        self.links.fit()

    def _on_reset(self) -> None:
        plan = self.model.plan
        self.table.delegate.looks = (
            () if plan is None else device_style(self._theme.palette, plan.devices)
        )
        self.table.lay_out()
        self._show_selection(scroll=False)
        order = (self.model.column, self.model.descending)
        if order != self._order:
            self._order = order
            self.table.scrollToTop()
        self.dock_title_changed.emit(self.dock_title)

    def _on_theme(self, _palette: object) -> None:
        self._on_reset()
        self.table.viewport().update()

    def _on_diff(self, _diff: object) -> None:
        self.dock_title_changed.emit(self.dock_title)

    def _on_selection(self, _selection: object) -> None:
        self._show_selection(scroll=True)

    def _show_selection(self, *, scroll: bool) -> None:
        """Select the row of the selected split without selecting it again."""
        split_id = self._state.selection.split_id
        self._syncing = True
        self.model.pin(split_id)
        row = self.model.row_of(split_id)
        if row < 0:
            self.table.clearSelection()
        elif row != self.table.currentIndex().row() or not self.table.selectedIndexes():
            # Qt scrolls to a current row by itself.
            self.table.setAutoScroll(scroll)
            self.table.setCurrentIndex(self.model.index(row, Column.ID))
            self.table.setAutoScroll(True)
        self._syncing = False

    def _on_rows(self, _selected: object, _deselected: object) -> None:
        # Not the current row: that one moves when the table gets the focus, too.
        plan, rows = self.model.plan, self.table.selectionModel().selectedRows()
        if self._syncing or plan is None or not rows:
            return
        row = self.model.row(rows[0].row())
        if not row.is_group:
            node_id = int(first_computed(plan)[row.split_id])
            self._state.select(Selection(node=plan.key(node_id), split_id=row.split_id))

    def _on_clicked(self, index: QModelIndex) -> None:
        self.model.toggle(index.row())

    def _on_header(self, section: int) -> None:
        column = Column(section)
        falls_first = column in (Column.NODES, Column.KIB, Column.MS)
        again = column is self.model.column
        falling = not self.model.descending if again else falls_first
        order = Qt.SortOrder.DescendingOrder if falling else Qt.SortOrder.AscendingOrder
        self.model.sort(section, order)


_BADGES: tuple[frozenset[LinkColumn], ...] = (
    frozenset(),
    frozenset({LinkColumn.SOURCE}),
    frozenset({LinkColumn.SOURCE, LinkColumn.TARGET}),
)
"""Which columns of links have no names, in the order in which they give way."""


class LinksTable(RowsTable):
    """As high as its rows; where the pane is low it scrolls. None: it is not there."""

    def __init__(self, theme: Theme, model: LinksModel, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Links between devices", parent)
        self.setModel(model)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.setMinimumHeight(_links_px(1))
        self.fit()

    def sizeHint(self) -> QSize:
        """As high as the rows need."""
        return QSize(super().sizeHint().width(), _links_px(self.model().rowCount()))

    def fit(self) -> None:
        """Take the room that the rows need, as far as there is any."""
        n_rows = self.model().rowCount()
        self.setMaximumHeight(_links_px(max(n_rows, 1)))
        self.setVisible(n_rows > 0)
        self.updateGeometry()
        self.lay_out()

    def lay_out(self) -> None:
        """Figures whole; names share the rest, and give way to badges, the source's first."""
        chosen = next((b for b in _BADGES if self._spare_px(b) >= 0), _BADGES[-1])
        spare_px = self._spare_px(chosen)
        more = {LinkColumn.SOURCE: spare_px // 2, LinkColumn.TARGET: spare_px - spare_px // 2}
        if spare_px < 0:
            least_px = BADGE_COLUMN_PX - self.fitting_px(LinkColumn.TARGET)
            more = {LinkColumn.TARGET: max(spare_px, min(least_px, 0))}
        for column in LinkColumn:
            self.setColumnWidth(column, self.fitting_px(column) + more.get(column, 0))

    def _spare_px(self, badges: frozenset[LinkColumn]) -> int:
        """What is left of the width where these columns have no names; those names go."""
        model = self.model()
        assert isinstance(model, LinksModel)
        model.badges = badges
        return self.viewport().width() - sum(self.fitting_px(column) for column in LinkColumn)


def _links_px(n_rows: int) -> int:
    return HEADER_PX + n_rows * ROW_PX + 2


def n_gpus(plan: PlanTable) -> int:
    """How many devices beside the CPU compute: those that others join, one by one."""
    others = (row for row in plan.devices if row.type is not DeviceType.CPU)
    return sum(max(len(row.members), 1) for row in others)


class SplitTable(QTableView):
    """The table's widget: column widths, hover, keys."""

    group_activated = Signal(object)
    """Carries the row of a folded line that was chosen by key."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.delegate = SplitDelegate(theme, self)
        self.setItemDelegate(self.delegate)
        self.setAccessibleName("Splits")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        rows = self.verticalHeader()
        rows.hide()
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        rows.setDefaultSectionSize(ROW_PX)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionsClickable(True)
        header.setMinimumSectionSize(20)
        header.setFixedHeight(24)
        self.entered.connect(self._on_entered)

    def lay_out(self) -> None:
        """Give columns their widths; nodes, then KiB give way to the names."""
        self.clearSpans()
        self._span_groups()
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        widths = self._widths()
        rest = self.viewport().width() - sum(widths.values())
        hidden, measured = True, Column.MS in widths
        for column, least_px in NAME_MIN_PX.items():
            hidden = hidden and rest < max(least_px, MEASURED_NAME_PX if measured else 0)
            self.setColumnHidden(column, hidden)
            rest += widths.pop(column) if hidden else 0
        for column, width in widths.items():
            self.setColumnWidth(column, width)
        self.setColumnWidth(Column.NAME, max(rest, 20))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102 - Qt calls it
        super().resizeEvent(event)
        self.lay_out()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102 - Qt calls it
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.group_activated.emit(self.currentIndex().row())
            return
        super().keyPressEvent(event)

    def leaveEvent(self, event: QEvent) -> None:  # noqa: D102 - Qt calls it
        self._set_hovered(-1)
        super().leaveEvent(event)

    def _widths(self) -> dict[Column, int]:
        """The width of each column but the name's."""
        mono, heads = QFontMetrics(fixed_font(SMALL_PX)), QFontMetrics(general_font(TINY_PX))
        model = self.model()
        widths = {Column.ID: 0, Column.DEVICE: 24, Column.NODES: 0, Column.KIB: 0, Column.MS: 0}
        for column, sample in (_SAMPLES | self._widest()).items():
            text = mono.horizontalAdvance(sample) + 2 * PAD_PX
            # Not the header's own hint: a hidden column has none.
            head = str(model.headerData(column, Qt.Orientation.Horizontal) or "")
            widths[column] = max(text, heads.horizontalAdvance(head) + 2 * PAD_PX)
        if model.columnCount() <= Column.MS:
            del widths[Column.MS]
        return widths

    def _widest(self) -> dict[Column, str]:
        """The widest figure of a column where the plan has wider ones than the samples."""
        model = self.model()
        assert isinstance(model, SplitsModel)
        if model.plan is None or not len(model.plan.splits):
            return {}
        splits = model.plan.splits
        figures = {
            Column.ID: str(len(splits)),
            Column.NODES: count(int((splits["stop"] - splits["start"]).max())),
            Column.KIB: count(int(splits["bytes"].max()) // KIB),
        }
        return {column: max(text, _SAMPLES[column], key=len) for column, text in figures.items()}

    def _span_groups(self) -> None:
        model = self.model()
        assert isinstance(model, SplitsModel)
        n_columns = model.columnCount()
        for row in range(model.rowCount()):
            if model.row(row).is_group:
                self.setSpan(row, 0, 1, n_columns)

    def _on_entered(self, index: QModelIndex) -> None:
        self._set_hovered(index.row())

    def _set_hovered(self, row: int) -> None:
        if row != self.delegate.hovered_row:
            self.delegate.hovered_row = row
            self.viewport().update()
