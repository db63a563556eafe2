"""WindowCommands: what every command of the table does."""

from __future__ import annotations

import json
import platform
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import PySide6
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget

from app.commands.keys import key_sheet
from app.commands.table import ACTIONS, MENUS, PANE_KEYS, THEME_MENU
from app.models.device_entries import entry_of
from app.shell.file_dialog import FileDialog
from app.shell.help_window import HelpWindow
from app.shell.panes import LOAD_REPORT, OPERATIONS, OPTIONS
from app.theme.theme import ThemeChoice
from engine.core.device_text import device_text
from engine.core.options import DEFAULTS
from engine.core.plan import Batch
from engine.errors import ExportError
from engine.report.embeddings import embedded_data, write_rows
from engine.service.messages import DEMO, TraceFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.commands.actions import Handler
    from app.shell.controller import Controller
    from app.shell.main_window import MainWindow
    from app.state.settings import Settings
    from app.theme.theme import Theme
    from engine.core.options import Options

NPY_FILTER = "NumPy arrays (*.npy);;All files (*)"
BACKEND_FILTER = (
    "Backends (splitscope_backend_*.py libggml-*.so libggml-*.dylib ggml-*.dll);;All files (*)"
)
GGUF_FILTER = "GGUF models (*.gguf);;All files (*)"
_TRACE_FILES = {
    TraceFormat.PERFETTO: ("run.pftrace", "Perfetto traces (*.pftrace)"),
    TraceFormat.CHROME: ("run.json", "Chrome traces (*.json)"),
}
"""A name to begin with and what else is listed; the ending of the chosen name decides."""


class WindowCommands(QObject):
    """Handlers; each is a bound method without arguments."""

    def __init__(
        self, window: MainWindow, controller: Controller, theme: Theme, settings: Settings
    ) -> None:
        super().__init__(window)
        self._window = window
        self._controller = controller
        self._state = controller.state
        self._theme = theme
        self._settings = settings
        self._help: HelpWindow | None = None

    def handlers(self) -> dict[str, Handler]:
        """What each command does, by its id."""
        return {
            "open": self.ask_for_model,
            "open_demo": self.open_demo,
            "quit": self._window.close,
            "undo": self._controller.planning.undo,
            "redo": self._controller.planning.redo,
            "copy_command": self.copy_command,
            "reset_options": self._controller.planning.reset,
            "show_options": self.show_options,
            "batch_prompt": self.show_prompt,
            "batch_token": self.show_token,
            "next_pane": self.next_pane,
            "previous_pane": self.previous_pane,
            "menu_bar": self.go_to_menus,
            "theme_system": self.follow_system,
            "theme_light": self.use_light,
            "theme_dark": self.use_dark,
            "switch_theme": self.switch_theme,
            "reset_layout": self._window.reset_layout,
            "run": self.run,
            "stop": self._controller.running.stop,
            "copy_embedding": self.copy_embedding,
            "save_embedding": self.save_embedding,
            "op_offload": self.flip_offload,
            "restart_engine": self._controller.restart,
            "show_devices": self._window.show_devices,
            "show_load_report": self.show_load_report,
            "load_backend": self.ask_for_backend,
            "load_backend_folder": self.ask_for_backend_folder,
            "unload_backend": self.unload_backend,
            "show_operations": self.show_operations,
            "check_ops": self.check_ops,
            "copy_device": self.copy_device,
            "copy_device_json": self.copy_device_json,
            "critical_path": self.flip_path,
            "export": self.export_perfetto,
            "export_chrome": self.export_chrome,
            "manual": self.show_manual,
            "manual_options": self.show_manual_options,
            "manual_backends": self.show_manual_backends,
            "manual_operations": self.show_manual_operations,
            "manual_several": self.show_manual_several,
            "keys": self.show_keys,
            "about": self.show_about,
        }

    # Files.

    def ask_for_model(self) -> None:
        """Ask which file to open."""
        recent = self._settings.recent
        folder = str(Path(recent[0].path).parent) if recent else str(Path.home())
        dialog = FileDialog(self._window, "Open a model", folder, GGUF_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self._controller.open)
        dialog.open()

    def open_demo(self) -> None:
        """Open the demo model."""
        self._controller.open(DEMO)

    def open_recent(self) -> None:
        """Open the file of the menu's action that was chosen."""
        action = self.sender()
        assert isinstance(action, QAction)
        self._controller.open(action.data())

    def export_perfetto(self) -> None:
        """Ask where to write a Perfetto trace."""
        self._ask_for_export(TraceFormat.PERFETTO)

    def export_chrome(self) -> None:
        """Ask where to write a Chrome trace."""
        self._ask_for_export(TraceFormat.CHROME)

    def _ask_for_export(self, trace_format: TraceFormat) -> None:
        name, file_filter = _TRACE_FILES[trace_format]
        folder = self._settings.export_folder
        dialog = FileDialog(self._window, "Export trace", folder, f"{file_filter};;All files (*)")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(Path(name).suffix[1:])
        dialog.selectFile(name)
        dialog.fileSelected.connect(self.export_to)
        dialog.open()

    def export_to(self, chosen: str) -> None:
        """Write the trace in the format of the file's ending, Perfetto's for an unknown one."""
        path = Path(chosen)
        self._settings.export_folder = str(path.parent)
        self._controller.running.export(path, trace_format_of(path))

    # Edit and view.

    def copy_command(self) -> None:
        """Put the llama.cpp command line on the clipboard."""
        model, plans = self._state.model, self._state.plans
        if model is not None and plans is not None:
            QGuiApplication.clipboard().setText(
                command_line(model.path, llama_cpp_args(plans.options))
            )

    def show_options(self) -> None:
        """Bring the options to the front."""
        self._window.area.show_view(OPTIONS)
        self._window.area.views[OPTIONS].setFocus(Qt.FocusReason.ShortcutFocusReason)

    def show_prompt(self) -> None:
        """Show the prompt's plan."""
        self._state.set_batch(Batch.PROMPT)

    def show_token(self) -> None:
        """Show a token's plan."""
        self._state.set_batch(Batch.TOKEN)

    def next_pane(self) -> None:
        """Give the next pane the focus."""
        self._go_to_pane(1)

    def previous_pane(self) -> None:
        """Give the pane before the focus."""
        self._go_to_pane(-1)

    def go_to_menus(self) -> None:
        """Give the menus the focus; arrow keys walk through them."""
        menus = self._window.menuBar()
        menus.setFocus(Qt.FocusReason.MenuBarFocusReason)
        menus.setActiveAction(menus.actions()[0])

    def _go_to_pane(self, step: int) -> None:
        panes = self._window.panes()
        if not panes:
            return
        focused = QApplication.focusWidget()
        here = next((i for i, pane in enumerate(panes) if _holds(pane, focused)), -1)
        start = here if here >= 0 or step > 0 else 0
        _focus_first(panes[(start + step) % len(panes)])

    def follow_system(self) -> None:
        """Use the system's colours."""
        self._choose_theme(ThemeChoice.SYSTEM)

    def use_light(self) -> None:
        """Use light colours."""
        self._choose_theme(ThemeChoice.LIGHT)

    def use_dark(self) -> None:
        """Use dark colours."""
        self._choose_theme(ThemeChoice.DARK)

    def switch_theme(self) -> None:
        """Use the other colours."""
        is_dark = self._theme.name == "dark"
        self._choose_theme(ThemeChoice.LIGHT if is_dark else ThemeChoice.DARK)

    def _choose_theme(self, choice: ThemeChoice) -> None:
        self._settings.theme = choice
        self._theme.choose(choice)
        self._window.sync_checks()

    # Run.

    def run(self) -> None:
        """Run the prompt of the panel, or embed it."""
        panel = self._window.run_panel
        if self._state.embeds:
            self._controller.running.embed(panel.prompt.toPlainText())
            return
        self._settings.n_predict = panel.n_predict.value()
        self._controller.running.start(panel.prompt.toPlainText(), panel.n_predict.value())

    def copy_embedding(self) -> None:
        """Put every row on the clipboard."""
        embedded = self._state.run.embedded
        if embedded is not None:
            QGuiApplication.clipboard().setText(json.dumps(embedded_data(embedded)))
            self._window.run_panel.embedding.say("Copied as JSON.")

    def save_embedding(self) -> None:
        """Ask where to write the rows."""
        folder = self._settings.export_folder
        dialog = FileDialog(self._window, "Save embedding", folder, NPY_FILTER)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("npy")
        dialog.selectFile("embedding.npy")
        dialog.fileSelected.connect(self.save_embedding_to)
        dialog.open()

    def save_embedding_to(self, chosen: str) -> None:
        """Write the rows; what came of it is said beside the buttons."""
        path, embedded = Path(chosen), self._state.run.embedded
        if embedded is None:
            return
        self._settings.export_folder = str(path.parent)
        panel = self._window.run_panel.embedding
        try:
            write_rows(path, embedded)
        except ExportError as error:
            said = (f"{error.title}.", f"{error.sentence}.", error.hint)
            panel.say(" ".join(said), is_problem=True)
        else:
            panel.say(f"{path.name} is written to {path.parent}")

    def flip_offload(self) -> None:
        """Switch op_offload."""
        planning = self._controller.planning
        planning.change(op_offload=not planning.options.op_offload)

    def flip_path(self) -> None:
        """Show the critical path on the timeline, or do not; remembered."""
        shows = not self._state.shows_path
        self._settings.shows_path = shows
        self._state.set_shows_path(shows=shows)
        self._window.sync_checks()

    # Devices.

    def show_load_report(self) -> None:
        """Bring the load report to the front."""
        self._window.show_devices(LOAD_REPORT)

    def ask_for_backend(self) -> None:
        """Ask for files of backends."""
        folder = self._settings.backend_folder
        dialog = FileDialog(self._window, "Load a backend", folder, BACKEND_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.filesSelected.connect(self.load_backends)
        dialog.open()

    def ask_for_backend_folder(self) -> None:
        """Ask for a folder with backends in it."""
        folder = self._settings.backend_folder
        dialog = FileDialog(self._window, "Load a folder of backends", folder, BACKEND_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.filesSelected.connect(self.load_backends)
        dialog.open()

    def load_backends(self, paths: Sequence[str]) -> None:
        """Load them, and show what becomes of it."""
        self._settings.backend_folder = str(Path(paths[0]).parent)
        self._window.show_devices()
        self._controller.backends.load(paths)

    def unload_backend(self) -> None:
        """Take out the selected device's backend."""
        self._controller.backends.unload(self._state.device)

    def show_operations(self) -> None:
        """Bring the operations to the front."""
        self._window.show_devices(OPERATIONS)

    def check_ops(self) -> None:
        """Check the open model's operations, and show it."""
        self.show_operations()
        with_speed = self._window.operations.with_speed.isChecked()
        self._controller.checking.check(with_speed=with_speed)

    def copy_device(self) -> None:
        """Put all that is known of the selected device on the clipboard."""
        entry = entry_of(self._state, self._state.device)
        if entry is not None:
            absent = "\n".join(p for p in (entry.name, entry.why, entry.hint) if p)
            text = absent if entry.device is None else device_text(entry.device)
            QGuiApplication.clipboard().setText(text)

    def copy_device_json(self) -> None:
        """The same as JSON."""
        entry = entry_of(self._state, self._state.device)
        if entry is not None:
            absent = {"name": entry.name, "reason": entry.why, "hint": entry.hint}
            facts = absent if entry.device is None else asdict(entry.device)
            QGuiApplication.clipboard().setText(json.dumps(facts, indent=2))

    # Help.

    def show_manual(self) -> None:
        """Open the manual."""
        self._help_window().show_manual()

    def show_manual_options(self) -> None:
        """Open the manual's page on options."""
        self._help_window().show_manual("options.md")

    def show_manual_backends(self) -> None:
        """Open the manual's page on backends."""
        self._help_window().show_manual("backends.md")

    def show_manual_operations(self) -> None:
        """Open the manual's page on checking operations."""
        self._help_window().show_manual("operations.md")

    def show_manual_several(self) -> None:
        """Open the manual's page on several devices."""
        self._help_window().show_manual("several-devices.md")

    def show_keys(self) -> None:
        """Show every command with its keys."""
        menus = [*MENUS, ("Theme", THEME_MENU)]
        self._help_window().show_markdown("Keys", key_sheet(ACTIONS, menus, PANE_KEYS))

    def show_about(self) -> None:
        """Say what this is."""
        self._help_window().show_markdown("About Splitscope", about_text())

    def _help_window(self) -> HelpWindow:
        if self._help is None:
            self._help = HelpWindow(self._window)
        return self._help


def trace_format_of(path: Path) -> TraceFormat:
    """The format of a file's ending."""
    return TraceFormat.CHROME if path.suffix.lower() == ".json" else TraceFormat.PERFETTO


def command_line(path: str, args: list[str]) -> str:
    """A command that llama.cpp understands."""
    return shlex.join(["llama-cli", *args, "-m", path])


def llama_cpp_args(options: Options) -> list[str]:
    """The arguments that llama.cpp knows: a few are Splitscope's own."""
    own = {name: getattr(DEFAULTS, name) for name in ("layer_rule", "blas", "n_copies")}
    return replace(options, **own).command_args()


def about_text() -> str:
    """Version, Python, Qt."""
    return (
        "# Splitscope\n\nWhich device runs every operation of a model, and why.\n\n"
        f"Python {platform.python_version()}, Qt for Python {PySide6.__version__}, "
        f"{platform.system()}"
    )


def _holds(pane: QWidget, widget: QWidget | None) -> bool:
    return widget is not None and (pane is widget or pane.isAncestorOf(widget))


def _focus_first(pane: QWidget) -> None:
    """Give a pane the focus, or the first widget in it that takes it."""
    takers = [pane, *pane.findChildren(QWidget)]
    for widget in takers:
        takes = widget.focusPolicy() != Qt.FocusPolicy.NoFocus or widget.focusProxy() is not None
        if takes and widget.isVisible() and widget.isEnabled():
            widget.setFocus(Qt.FocusReason.ShortcutFocusReason)
            return
