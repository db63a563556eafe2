"""The window's start: `create_app`, and the command line `python -m app`."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from app.bridge.bridge import Bridge
from app.bridge.engine_host import EngineHost
from app.screen import no_screen
from app.shell.controller import Controller, unexpected_message
from app.shell.exception_log import ExceptionLog, start_logging
from app.shell.main_window import MainWindow
from app.shell.panes import MakeView, make_view
from app.shell.screenshot import Screenshot
from app.state.app_state import AppState
from app.state.option_memory import OptionMemory
from app.state.settings import Settings
from app.theme.theme import Theme, ThemeChoice
from engine.service.messages import DEMO

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PX = 16_384
"""More than any screen has; a picture this large takes 1 GiB."""

ALIVE_TICK_MS = 250
"""How often Python gets a turn while Qt waits, so that Ctrl+C in a terminal ends the window."""


@dataclass(eq=False)
class App:
    """Everything that was made for one window; `close` ends it."""

    qt: QApplication
    theme: Theme
    settings: Settings
    state: AppState
    bridge: Bridge
    controller: Controller
    window: MainWindow
    exit_code: int = 0

    def exec(self) -> int:
        """Run until the last window is closed, then end the engine."""
        self.exit_code = self.qt.exec()
        self.close()
        return self.exit_code

    def close(self) -> None:
        """Close the window and end the engine; waits up to two seconds."""
        self.window.close()
        self.bridge.close()
        self.controller.planning.dispose()
        for part in (self.window, self.controller, self.bridge, self.state, self.theme):
            part.deleteLater()


def create_app(
    *,
    host: EngineHost | None = None,
    exec_app: bool = True,
    quit_after_s: float | None = None,
    settings: Settings | None = None,
    make: MakeView = make_view,
    recalls: bool = True,
) -> App:
    """Make the window and start the engine.

    With `exec_app` it also runs until the window is closed, or for `quit_after_s`. `host`,
    `settings` and `make` take the place of the engine's process, the user's settings and the views
    of `app.views` (optional). Without `recalls` a model's options of last time are neither used
    nor changed, and no backend is loaded: what is shown then depends on nothing but the file.
    """
    qt = _application()
    chosen = settings or Settings()
    theme = Theme(chosen.theme, qt)
    state = AppState(qt)
    bridge = Bridge(host or EngineHost(), qt)
    remembered = (OptionMemory(chosen), chosen) if recalls else (None, None)
    controller = Controller(state, bridge, qt, *remembered)
    window = MainWindow(controller, theme, chosen, make)
    app = App(qt, theme, chosen, state, bridge, controller, window)
    controller.start()
    window.show()
    if quit_after_s is not None:
        QTimer.singleShot(round(1000 * quit_after_s), qt.quit)
    if exec_app:
        app.exec()
    return app


def _application() -> QApplication:
    known = QApplication.instance()
    if isinstance(known, QApplication):
        return known
    qt = QApplication(sys.argv[:1])
    qt.setApplicationName("Splitscope")
    qt.setDesktopFileName("splitscope")
    qt.setStyle("Fusion")
    return qt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the window; gives back its exit code."""
    args = _parser().parse_args(argv)
    problem = no_screen()
    if problem:
        sys.stderr.write(
            f"No window can be opened here ({problem}). Use: python -m app --headless-demo, or "
            "python -m engine --help\n"
        )
        return 1
    start_logging()
    app = create_app(exec_app=False, recalls=args.screenshot is None)
    exceptions = ExceptionLog(app.qt)
    reporter = _Reporter(app)
    exceptions.caught.connect(reporter.report)
    exceptions.install()
    _end_on_ctrl_c(app.qt)
    _apply(args, app)
    code = app.exec()
    exceptions.remove()
    return code


class _Reporter:
    """Says what nobody caught."""

    def __init__(self, app: App) -> None:
        self._app = app

    def report(self, caught: tuple[str, str]) -> None:
        self._app.window.messages.show_message(unexpected_message(*caught))


def _end_on_ctrl_c(qt: QApplication) -> None:
    def quit_now(_signal: int, _frame: object) -> None:
        qt.quit()

    signal.signal(signal.SIGINT, quit_now)
    timer = QTimer(qt)
    # Qt waits in C++; a signal's handler runs when Python gets a turn.
    timer.timeout.connect(_take_a_turn)
    timer.start(ALIVE_TICK_MS)


def _take_a_turn() -> None:
    """Nothing: the turn itself is what is wanted."""


def _apply(args: argparse.Namespace, app: App) -> None:
    if args.theme:
        app.theme.choose(ThemeChoice(args.theme))
        app.window.sync_checks()
    if args.size:
        app.window.resize(*args.size)
    if args.demo:
        app.controller.open(DEMO)
    elif args.file:
        app.controller.open(args.file)
    if args.screenshot:
        shot = Screenshot(
            app.controller, app.window, args.screenshot,
            opens_model=bool(args.demo or args.file), after_run=args.after_run,
        )  # fmt: skip
        shot.ended.connect(_end_with)


def _end_with(problem: str) -> None:
    """End the window; with a problem, say it in the terminal and end with 1."""
    if problem:
        sys.stderr.write(f"{problem}\n")
    QApplication.exit(1 if problem else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "splitscope",
        description="Which device runs every operation of a model, and why.",
        epilog="python -m app --headless-demo [--out FOLDER]: run the demo without a screen, and "
        "write its trace and a picture of the window.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("file", nargs="?", help="a GGUF file to open")
    what.add_argument("--demo", action="store_true", help="open the demo model")
    parser.add_argument("--theme", choices=[c.value for c in ThemeChoice])
    parser.add_argument("--size", type=_size, metavar="WxH", help="size of the window")
    parser.add_argument(
        "--screenshot", type=Path, metavar="PATH", help="write a picture of the window and end"
    )
    parser.add_argument(
        "--after-run", action="store_true", help="run the prompt before the picture is taken"
    )
    return parser


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 1280x720")
    size = int(width), int(height)
    if not all(1 <= px <= MAX_PX for px in size):
        raise argparse.ArgumentTypeError(f"{text}: each side has 1 to {MAX_PX} pixels")
    return size
