"""MainWindow: what stands where, and what follows what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.commands.actions import ActionSet
from app.commands.spec import Need
from app.commands.table import ACTIONS, EMBED, MENUS, PANES, RECENT, THEME, THEME_MENU
from app.commands.table import RUN as RUN_COMMAND
from app.models.device_entries import entry_of
from app.shell.answer_bar import AnswerBar
from app.shell.backend_text import is_backend_file
from app.shell.bars import ChangeBar, MessageStack
from app.shell.devices_page import DevicesPage
from app.shell.dock_area import DockArea
from app.shell.messages import dropped_message
from app.shell.panes import (
    DEVICES,
    LOAD_REPORT,
    OPERATIONS,
    OPTIONS,
    RUN,
    MakeView,
    make_view,
)
from app.shell.run_panel import RunPanel
from app.shell.status import StatusBar
from app.shell.tab_order import go_to_next
from app.shell.tensor_page import TensorPage
from app.shell.toolbar import Toolbar
from app.shell.welcome import WelcomePage
from app.shell.window_commands import WindowCommands
from app.state.app_state import Selection
from app.theme.fonts import SMALL_PX, general_font
from app.views.devices.view import DevicesView
from app.views.load_report.view import LoadReportView
from app.views.operations.view import OperationsView
from app.views.options.view import OptionsView
from engine.core.plan import Batch
from engine.core.visible import visible

if TYPE_CHECKING:
    from PySide6.QtGui import (
        QCloseEvent,
        QDragEnterEvent,
        QDragLeaveEvent,
        QDropEvent,
        QKeyEvent,
    )

    from app.shell.controller import Controller
    from app.shell.planning import Refusal
    from app.state.app_state import DiffMode
    from app.state.settings import RecentFile, Settings
    from app.theme.theme import Theme

MIN_PX = (1024, 640)
DEFAULT_PX = (1280, 800)
FRAME_PX = (16, 48)
"""What a window manager may add; it says so only once the window is shown."""

TITLE = "Splitscope"


class MainWindow(QMainWindow):
    """The window. Everything it shows comes from AppState, everything it does from commands."""

    def __init__(
        self,
        controller: Controller,
        theme: Theme,
        settings: Settings,
        make: MakeView = make_view,
    ) -> None:
        super().__init__()
        self._controller, self._theme, self._settings = controller, theme, settings
        self._state = controller.state
        self.setObjectName("main_window")
        self.setWindowTitle(TITLE)
        self.setMinimumSize(*MIN_PX)
        self.resize(first_size(self.screen().availableSize()))
        self.setAcceptDrops(True)
        self.setFont(general_font(SMALL_PX))
        self.commands = WindowCommands(self, controller, theme, settings)
        self.actions_ = ActionSet(ACTIONS, self.commands.handlers(), theme, self)
        self.addActions(self.actions_.all())
        self._make_rows()
        self._make_centre(make)
        self._make_menus()
        self._connect()
        self._restore()
        self._apply_theme()
        self._refresh_facts()
        # No control has the focus before a key is pressed.
        self.setFocus()

    # Made once.

    def _make_rows(self) -> None:
        state, theme = self._state, self._theme
        self.toolbar = Toolbar(state, theme, self._controller.planning, self.actions_, self)
        self.answer = AnswerBar(state, theme, self)
        self.addToolBar(self.toolbar)
        self.addToolBarBreak()
        self.addToolBar(self.answer)
        self.status = StatusBar(state, self)
        self.setStatusBar(self.status)

    def _make_centre(self, make: MakeView) -> None:
        state, theme = self._state, self._theme
        texts = {spec.id: spec.text for spec in ACTIONS} | {"run": "Run again"}
        undo_key = self.actions_["undo"].shortcut().toString()
        self.change_bar = ChangeBar(theme, undo_key, self)
        self.messages = MessageStack(texts, theme, self)
        n_predict = self._settings.n_predict
        self.run_panel = RunPanel(state, theme, self.actions_, n_predict, self)
        self.welcome = WelcomePage(state, theme, self.actions_, self)
        self.options = OptionsView(state, theme, self.actions_, self)
        self.devices = DevicesView(state, theme, self.actions_, self)
        self.load_report = LoadReportView(state, theme, self.actions_, self)
        self.operations = OperationsView(state, theme, self.actions_, self)
        panels = {
            RUN: self.run_panel,
            OPTIONS: self.options,
            DEVICES: self.devices,
            LOAD_REPORT: self.load_report,
            OPERATIONS: self.operations,
        }
        self.area = DockArea(state, theme, make, panels, self)
        self.tensors = TensorPage(self)
        self.devices_page = DevicesPage(state, theme, self.actions_, self)
        self.pages = QStackedWidget(self)
        for page in (self.welcome, self.area, self.tensors, self.devices_page):
            self.pages.addWidget(page)
        centre = QWidget(self)
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.change_bar)
        column.addWidget(self.messages)
        column.addWidget(self.pages, stretch=1)
        self.setCentralWidget(centre)

    def _make_menus(self) -> None:
        self.recent_menu = QMenu("Open recent", self)
        for title, ids in MENUS:
            menu = self.menuBar().addMenu(f"&{title}")
            for action_id in ids:
                if action_id == RECENT:
                    menu.addMenu(self.recent_menu)
                elif action_id == THEME:
                    self.actions_.fill_menu(menu.addMenu("Theme"), THEME_MENU)
                elif action_id == PANES:
                    menu.addActions([d.toggleViewAction() for d in self.area.docks.values()])
                else:
                    self.actions_.fill_menu(menu, (action_id,))

    def _connect(self) -> None:
        state, controller = self._state, self._controller
        controller.message.connect(self.messages.show_message)
        controller.message_gone.connect(self.messages.remove_topic)
        controller.progress.connect(self.welcome.job_row.show_progress)
        controller.progress.connect(self.run_panel.job_row.show_progress)
        for view in (self.devices, self.devices_page.devices):
            controller.backends.progress.connect(view.job_row.show_progress)
            view.start_asked.connect(self._on_start_asked)
        controller.checking.progress.connect(self.operations.job_row.show_progress)
        self.devices_page.left.connect(self._show_page)
        controller.facts_changed.connect(self._refresh_facts)
        controller.planning.opened.connect(self._on_opened)
        controller.planning.undo_stack.indexChanged.connect(self._refresh_undo)
        controller.running.started.connect(self._on_run_started)
        controller.planning.settled.connect(self._sync_options)
        controller.planning.refused.connect(self._on_refused)
        state.plans_changed.connect(self._sync_options)
        self.options.asked.connect(self._on_options_asked)
        self.options.folded.connect(self._on_folded)
        self.run_panel.prompt.textChanged.connect(self._refresh_facts)
        for signal in (
            state.plans_changed, state.run_changed, state.trace_changed, state.device_chosen,
            state.devices_changed, state.loaded_changed,
        ):  # fmt: skip
            signal.connect(self._refresh_facts)
        for signal in (state.model_changed, state.plans_changed):
            signal.connect(self._show_page)
        state.batch_changed.connect(self.sync_checks)
        state.diff_changed.connect(self._on_diff)
        state.trace_changed.connect(self._on_trace)
        self.change_bar.shows_chosen.connect(self._on_shows)
        self.change_bar.kept.connect(controller.planning.keep)
        self.change_bar.undone.connect(controller.planning.undo)
        self.messages.asked.connect(self._on_asked)
        self.welcome.open_asked.connect(controller.open)
        self._theme.changed.connect(self._apply_theme)

    def _restore(self) -> None:
        geometry, layout = self._settings.geometry, self._settings.layout
        if geometry is not None:
            self.restoreGeometry(geometry)
        width_px = self._settings.layout_width_px
        if layout is not None and not self.area.restore_layout(layout, width_px):
            self._settings.forget_layout()
        self._state.set_shows_path(shows=self._settings.shows_path)
        if self._settings.open_sections is not None:
            self.options.open_only(self._settings.open_sections)
        self._show_recent()

    # For the commands.

    def show_devices(self, pane: str = DEVICES) -> None:
        """Bring devices or load report to the front: as a pane, without a plan as a page."""
        if self.pages.currentWidget() is self.area:
            self.area.show_view(pane)
            self.area.views[pane].setFocus(Qt.FocusReason.ShortcutFocusReason)
            return
        page = self.devices_page
        self.pages.setCurrentWidget(page)
        view = page.report if pane == LOAD_REPORT else page.devices
        view.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def panes(self) -> list[QWidget]:
        """What F6 walks through."""
        bars = [w for w in (self.change_bar, self.messages) if w.isVisible()]
        is_docks = self.pages.currentWidget() is self.area
        panes = self.area.focus_order() if is_docks else [self.pages.currentWidget()]
        return [self.toolbar, *bars, *panes]

    def tab_panes(self) -> list[QWidget]:
        """What Tab walks through: as `panes`, with the docks' titles."""
        bars: list[QWidget] = [self.change_bar, self.messages]
        is_docks = self.pages.currentWidget() is self.area
        panes = self.area.tab_order() if is_docks else [self.pages.currentWidget()]
        return [self.toolbar, *bars, self.answer, *panes]

    def reset_layout(self) -> None:
        """Put every pane back in its place."""
        self._settings.forget_layout()
        self.area.reset_layout()

    def sync_checks(self) -> None:
        """Check the commands that say how things are."""
        is_prompt = self._state.batch is Batch.PROMPT
        self.actions_["batch_prompt"].setChecked(is_prompt)
        self.actions_["batch_token"].setChecked(not is_prompt)
        self.actions_[f"theme_{self._theme.choice.value}"].setChecked(True)
        self.actions_["critical_path"].setChecked(self._state.shows_path)
        self.actions_["op_offload"].setChecked(self._controller.planning.options.op_offload)

    # What follows what.

    def _show_page(self) -> None:
        state = self._state
        if state.model is None:
            self.pages.setCurrentWidget(self.welcome)
        elif state.plans is None:
            self.tensors.show_model(state.model)
            self.pages.setCurrentWidget(self.tensors)
        else:
            self.pages.setCurrentWidget(self.area)
            self.setFocus()
        self.actions_.use(EMBED if state.embeds else RUN_COMMAND)
        name = "" if state.model is None else f"{visible(Path(state.model.path).name)} · "
        self.setWindowTitle(f"{name}{TITLE}")

    def _on_diff(self, diff: DiffMode | None) -> None:
        self.change_bar.show_diff(diff, makes_tokens=not self._state.embeds)

    def _on_trace(self) -> None:
        trace = self._state.trace
        if trace is not None and trace.n_spans:
            self.area.join_timeline()

    def _on_run_started(self) -> None:
        self.messages.remove_topic("engine")
        self.area.show_view(RUN)

    def _sync_options(self) -> None:
        self.options.show_options(self._controller.planning.options)

    def _on_options_asked(self, changes: dict[str, Any]) -> None:
        self.messages.remove_topic("options")
        self._controller.planning.change(**changes)

    def _on_refused(self, refusal: Refusal) -> None:
        """Say at the option why it is impossible, above the panes where that is out of view."""
        message = refusal.message
        words = " ".join(part for part in (message.title, message.sentence) if part)
        if not self.options.show_refusal(refusal.asked, refusal.before, words):
            self.messages.show_message(message)

    def _on_start_asked(self, asked: tuple[str, bool]) -> None:
        path, is_on = asked
        self._controller.backends.set_at_start(path, is_on=is_on)

    def _on_folded(self, ids: tuple[str, ...]) -> None:
        self._settings.open_sections = ids

    def _on_opened(self, file: RecentFile) -> None:
        self._settings.add_recent(file)
        self._show_recent()

    def _show_recent(self) -> None:
        files = self._settings.recent
        self.welcome.set_recent(files)
        self.recent_menu.clear()
        self.recent_menu.setEnabled(bool(files))
        for file in files:
            action = QAction(file.name, self.recent_menu)
            action.setData(file.path)
            action.setToolTip(file.path)
            action.triggered.connect(self.commands.open_recent)
            self.recent_menu.addAction(action)

    def _on_shows(self, shows: str) -> None:
        diff = self._state.diff
        if diff is not None:
            self._state.set_diff(replace(diff, shows=shows))

    def _on_asked(self, action_id: str) -> None:
        self.actions_[action_id].trigger()

    def _refresh_facts(self) -> None:
        self.actions_.set_facts(self._facts())
        self._refresh_undo()
        self.sync_checks()

    def _facts(self) -> Need:
        state, controller = self._state, self._controller
        facts = Need.BUSY if controller.is_busy else Need.IDLE
        entry = entry_of(state, state.device)
        has_text = bool(self.run_panel.prompt.toPlainText().strip())
        held = (
            (Need.ENGINE, controller.is_ready),
            (Need.MODEL, state.model is not None),
            (Need.PLAN, state.plans is not None),
            (Need.RUNNABLE, state.model is not None and not state.model.run_problem),
            (Need.TRACE, state.trace is not None and state.trace.n_spans > 0),
            (Need.HELD, controller.running.has_trace),
            (Need.EMBEDDING, state.run.embedded is not None),
            (Need.GRAPH, state.plans is not None and state.plans.prompt.n_nodes > 0),
            (Need.TOKENS, not state.embeds),
            (Need.DEVICE, entry is not None),
            (Need.LOADED, entry is not None and entry.can_be_unloaded),
            (Need.PROMPT, has_text),
            (Need.TEXT, has_text),
        )
        for need, is_so in held:
            facts |= need if is_so else Need.NOTHING
        return facts

    def _refresh_undo(self) -> None:
        planning = self._controller.planning
        stack = planning.undo_stack
        self.actions_["undo"].setEnabled(planning.can_step(back=True))
        self.actions_["redo"].setEnabled(planning.can_step(back=False))
        for name, text in (("undo", stack.undoText()), ("redo", stack.redoText())):
            # A single & would mark a letter of the menu.
            self.actions_[name].setText(f"{name.capitalize()} {text}".strip().replace("&", "&&"))
        self.change_bar.undo_button.setEnabled(planning.can_step(back=True))

    def _apply_theme(self) -> None:
        self.setPalette(self._theme.qt_palette())
        self.setStyleSheet(self._theme.stylesheet())

    # Qt's events.

    def closeEvent(self, event: QCloseEvent) -> None:
        """Remember how the window was."""
        self._settings.geometry = self.saveGeometry()
        self._settings.layout = self.area.save_layout()
        self._settings.layout_width_px = self.area.width()
        self._settings.save()
        super().closeEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take files; what is no model is said when it is dropped."""
        if event.mimeData().hasUrls():
            _accept_copy(event)
            self.welcome.set_drop_over(True)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        """It went away."""
        self.welcome.set_drop_over(False)

    def dropEvent(self, event: QDropEvent) -> None:
        """Open it, load it where it is a backend, or say why not."""
        self.welcome.set_drop_over(False)
        _accept_copy(event)
        paths = [url.toLocalFile() for url in event.mimeData().urls()]
        if paths and all(is_backend_file(path) for path in paths):
            self.commands.load_backends(paths)
            return
        problem = dropped_message(paths)
        if problem is None:
            self._controller.open(paths[0])
        else:
            self.messages.show_message(problem)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc that no pane and no field had a use for ends the selection."""
        if event.key() == Qt.Key.Key_Escape:
            self._state.select(Selection())
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, next: bool) -> bool:  # noqa: N802 - Qt's names
        """Tab goes through the rows and panes from the top, whenever they were made."""
        return go_to_next(self.tab_panes(), self, step=1 if next else -1)


def first_size(available: QSize) -> QSize:
    """The size of a window that has none yet: with its frame it fits on the screen."""
    return QSize(*DEFAULT_PX).boundedTo(available - QSize(*FRAME_PX)).expandedTo(QSize(*MIN_PX))


def _accept_copy(event: QDropEvent) -> None:
    """Take a file as a copy: a move would ask the other program to delete it."""
    event.setDropAction(Qt.DropAction.CopyAction)
    event.accept()
