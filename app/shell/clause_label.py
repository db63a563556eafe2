"""ClauseLabel: a sentence of rich text that gives way clause by clause, never mid-word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.shell.markup import joined, to_html, to_plain
from app.theme.colours import lane_looks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtGui import QResizeEvent

    from app.theme.theme import Theme
    from engine.core.table import DeviceRow


class ClauseLabel(QLabel):
    """Clauses in the markup of `markup`; the tooltip has those that do not fit."""

    def __init__(self, theme: Theme, separator: str = " ", parent: QWidget | None = None) -> None:
        """`separator` stands between clauses; a space makes sentences of them."""
        super().__init__(parent)
        self._theme = theme
        self._separator = separator
        self._clauses: tuple[str, ...] = ()
        self._devices: tuple[DeviceRow, ...] = ()
        self._note = ""
        self.setTextFormat(Qt.TextFormat.RichText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        theme.changed.connect(self._fit)

    @property
    def clauses(self) -> tuple[str, ...]:
        """What was set."""
        return self._clauses

    @property
    def plain_text(self) -> str:
        """All clauses, without markup."""
        return to_plain(self._joined(self._clauses))

    @property
    def n_shown(self) -> int:
        """How many clauses fit."""
        return self._n_fitting()

    def set_clauses(
        self, clauses: Sequence[str], devices: Sequence[DeviceRow] = (), note: str = ""
    ) -> None:
        """Show other clauses; `devices` are those of badges, `note` stands in the tooltip too."""
        self._clauses = tuple(clauses)
        self._devices = tuple(devices)
        self._note = note
        self.setAccessibleName(self.plain_text)
        self._fit()

    def sizeHint(self) -> QSize:
        """Any width will do: the row gives what it has."""
        return QSize(0, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """As the size hint."""
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show what fits now."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        n = self._n_fitting()
        html = self._html(n)
        if html != self.text():
            self.setText(html)
        cut = self.plain_text if n < len(self._clauses) else ""
        self.setToolTip("\n".join(part for part in (cut, self._note) if part))

    def _n_fitting(self) -> int:
        for n in range(len(self._clauses), 1, -1):
            if self._width(n) <= self.contentsRect().width():
                return n
        return min(1, len(self._clauses))

    def _width(self, n: int) -> float:
        document = QTextDocument()
        document.setDocumentMargin(0)
        document.setDefaultFont(self.font())
        document.setHtml(self._html(n))
        return document.idealWidth() + 2

    def _html(self, n: int) -> str:
        looks = lane_looks(self._theme.palette, self._devices)
        text = self._joined(self._clauses[:n])
        # One line: a badge or a figure must not wrap below the bar.
        html = to_html(text, self._theme.palette, looks, self.devicePixelRatioF())
        return f'<p style="white-space:pre; margin:0">{html}</p>'

    def _joined(self, clauses: Sequence[str]) -> str:
        return joined(clauses) if self._separator == " " else self._separator.join(clauses)
