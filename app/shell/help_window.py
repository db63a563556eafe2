"""The manual and the key sheet, in a window of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QUrl
from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QDialog, QTextBrowser, QVBoxLayout, QWidget

from engine.paths import resources_dir

if TYPE_CHECKING:
    from pathlib import Path

    from PySide6.QtGui import QTextDocument

SIZE_PX = (720, 600)


class HelpWindow(QDialog):
    """Shows Markdown; not modal. Esc closes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.browser = QTextBrowser(self)
        self.browser.setProperty("role", "plain")
        self.browser.setOpenExternalLinks(True)
        self.browser.setSearchPaths([str(manual_path().parent)])
        self.browser.sourceChanged.connect(self._ink_links)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.browser)
        self.resize(*SIZE_PX)

    def show_manual(self, page: str = "index.md") -> None:
        """A page of the manual."""
        self.setWindowTitle("Manual")
        self.browser.setSource(QUrl.fromLocalFile(str(manual_path().with_name(page))))
        self._raise()

    def show_markdown(self, title: str, text: str) -> None:
        """Another text."""
        self.setWindowTitle(title)
        self.browser.setMarkdown(text)
        self._raise()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange):
            self._ink_links()

    def _ink_links(self) -> None:
        """Links in the colour of the text: Markdown gives them the application's blue."""
        self.browser.ensurePolished()
        colour = self.browser.palette().text()
        cursor = QTextCursor(self.browser.document())
        for start, stop in _links(self.browser.document()):
            cursor.setPosition(start)
            cursor.setPosition(stop, QTextCursor.MoveMode.KeepAnchor)
            inked = QTextCharFormat()
            inked.setForeground(colour)
            inked.setFontUnderline(True)
            cursor.mergeCharFormat(inked)

    def _raise(self) -> None:
        self.show()
        self.raise_()
        self.activateWindow()


def _links(document: QTextDocument) -> list[tuple[int, int]]:
    """Where links begin and end."""
    found = []
    block = document.begin()
    while block.isValid():
        piece = block.begin()
        while not piece.atEnd():
            fragment = piece.fragment()
            if fragment.charFormat().isAnchor():
                found.append((fragment.position(), fragment.position() + fragment.length()))
            piece += 1
        block = block.next()
    return found


def manual_path() -> Path:
    """The manual's first page."""
    return resources_dir() / "manual" / "index.md"
