"""The manual and the key sheet, in a window of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl
from PySide6.QtWidgets import QDialog, QTextBrowser, QVBoxLayout, QWidget

from engine.paths import resources_dir

if TYPE_CHECKING:
    from pathlib import Path

SIZE_PX = (720, 600)


class HelpWindow(QDialog):
    """Shows Markdown; not modal. Esc closes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.browser = QTextBrowser(self)
        self.browser.setProperty("role", "plain")
        self.browser.setOpenExternalLinks(True)
        self.browser.setSearchPaths([str(manual_path().parent)])
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.browser)
        self.resize(*SIZE_PX)

    def show_manual(self) -> None:
        """The manual's first page."""
        self.setWindowTitle("Manual")
        self.browser.setSource(QUrl.fromLocalFile(str(manual_path())))
        self._raise()

    def show_markdown(self, title: str, text: str) -> None:
        """Another text."""
        self.setWindowTitle(title)
        self.browser.setMarkdown(text)
        self._raise()

    def _raise(self) -> None:
        self.show()
        self.raise_()
        self.activateWindow()


def manual_path() -> Path:
    """The manual's first page."""
    return resources_dir() / "manual" / "index.md"
