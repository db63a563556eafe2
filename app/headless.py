"""The demo without a screen: the same window and engine, offscreen, and what it would show as text.

Prints the split table and the memory ledger, runs the demo prompt, writes a trace and a picture of
the window. The last line is `demo ok: N splits, X tokens/s, trace and picture in FOLDER/`.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QObject, QTimer

from app.main import App, create_app
from engine.cli.plan_words import print_headline, print_memory, print_splits
from engine.errors import ExportError
from engine.service.messages import DEMO, TraceFormat
from engine.trace.export.atomic import check_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.shell.messages import Message
    from engine.core.summary import Progress

SIZE = (1600, 1000)
LIMIT_S = 900
"""A demo that takes longer than this is stuck; it ends with an error."""

SETTLE_MS = 800
"""Panes paint, and the last spans of the run arrive."""

TRACE_NAME = "trace.pftrace"
PICTURE_NAME = "window.png"


@dataclass(slots=True)
class Outcome:
    """What the demo came to."""

    exit_code: int = 1
    words: list[str] = field(default_factory=list)


class HeadlessDemo(QObject):
    """Opens the demo, runs it, exports; each step starts when the one before has ended."""

    def __init__(self, app: App, out: Path) -> None:
        super().__init__(app.qt)
        self._app, self._out = app, out
        self.outcome = Outcome()
        self._kind = ""
        self._steps: list[Callable[[], None]] = [self._show_plan, self._export, self._finish]
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self._next)
        self._guard = QTimer(self)
        self._guard.setSingleShot(True)
        self._guard.timeout.connect(self._too_long)
        controller = app.controller
        controller.planning.settled.connect(self._settled)
        controller.running.ended.connect(self._settled)
        controller.message.connect(self._heard)
        controller.progress.connect(self._tell)

    def start(self) -> None:
        """Open the demo model; fetches it when it is not here."""
        self._guard.start(LIMIT_S * 1000)
        self._app.controller.open(DEMO)

    def _settled(self) -> None:
        if not self._app.controller.is_busy:
            self._timer.start()

    def _next(self) -> None:
        if self._steps:
            self._steps.pop(0)()

    def _show_plan(self) -> None:
        plans = self._app.state.plans
        if plans is None:
            self._give_up("The demo could not be planned.")
            return
        print_headline(plans)
        print_splits(plans.prompt)
        print()
        print_memory(plans)
        print(flush=True)
        self._app.window.actions_["run"].trigger()

    def _export(self) -> None:
        run = self._app.state.run
        if run.summary is None:
            self._give_up("The demo prompt was not run.")
            return
        print(f"\n{run.text.strip()}\n", flush=True)
        path = self._out / TRACE_NAME
        self._app.controller.running.export(path, TraceFormat.PERFETTO)
        self._timer.start()

    def _finish(self) -> None:
        summary = self._app.state.run.summary
        picture = self._out / PICTURE_NAME
        if not self._app.window.grab().save(str(picture)):
            self._give_up(f"The picture cannot be written to {picture}")
            return
        if summary is None or not (self._out / TRACE_NAME).exists():
            self._give_up("The trace was not written.")
            return
        n_splits = sum(split.plan == summary.prompt_plan_id for split in summary.splits)
        self.outcome.words.append(
            f"demo ok: {n_splits} splits, {summary.decode_tokens_per_s:.1f} tokens/s, "
            f"trace and picture in {self._out}/"
        )
        self.outcome.exit_code = 0
        self._app.qt.quit()

    def _heard(self, message: Message) -> None:
        print(message.text, file=sys.stderr, flush=True)
        if not self._app.controller.is_ready:
            self._give_up("The engine ended, and the demo with it.")

    def _tell(self, progress: Progress | None) -> None:
        """One line for each kind of work, not for each step of it."""
        kind = "" if progress is None else progress.label.split(" ", 1)[0]
        if progress is not None and kind != self._kind:
            print(f"{progress.label} …", file=sys.stderr, flush=True)
        self._kind = kind

    def _too_long(self) -> None:
        self._give_up(f"The demo did not end within {LIMIT_S} s.")

    def _give_up(self, words: str) -> None:
        self.outcome.words.append(words)
        self._app.qt.quit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo headless; 0 when every part of it worked."""
    parser = argparse.ArgumentParser("python -m app --headless-demo")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder to write to")
    out = parser.parse_args(argv).out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"The folder cannot be made: {error.strerror}. {out}", file=sys.stderr)
        return 1
    try:
        for name in (TRACE_NAME, PICTURE_NAME):
            check_target(out / name)
    except ExportError as error:
        print(f"{error.title}. {error.sentence}. {error.hint}", file=sys.stderr)
        return 1
    app = create_app(exec_app=False, recalls=False)
    app.window.resize(*SIZE)
    demo = HeadlessDemo(app, out)
    demo.start()
    app.exec()
    for words in demo.outcome.words:
        print(words, flush=True)
    return demo.outcome.exit_code
