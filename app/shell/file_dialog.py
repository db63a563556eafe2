"""FileDialog: asks for a file and looks at names only."""

from __future__ import annotations

from PySide6.QtCore import QFileInfo
from PySide6.QtGui import QAbstractFileIconProvider, QIcon
from PySide6.QtWidgets import QFileDialog, QFileIconProvider, QWidget


class PlainIcons(QFileIconProvider):
    """One icon for folders and one for files.

    Qt's own opens every listed file to find out what it is, and waits for ever at one that never
    answers, such as those of /proc.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setOptions(QAbstractFileIconProvider.Option.DontUseCustomDirectoryIcons)

    def icon(self, what: QFileInfo | QAbstractFileIconProvider.IconType) -> QIcon:
        """The icon of a kind, or of a folder or file."""
        if isinstance(what, QFileInfo):
            kinds = QAbstractFileIconProvider.IconType
            what = kinds.Folder if what.isDir() else kinds.File
        return super().icon(what)

    def type(self, info: QFileInfo) -> str:
        """What the dialog's column says: by the name alone."""
        return "Folder" if info.isDir() else f"{info.suffix()} file".strip()


class FileDialog(QFileDialog):
    """Not modal to the program; it goes when it is closed."""

    def __init__(self, parent: QWidget, title: str, folder: str, filters: str) -> None:
        super().__init__(parent, title, folder, filters)
        self.setOption(QFileDialog.Option.DontUseCustomDirectoryIcons)
        # Qt does not own it.
        self._icons = PlainIcons()
        self.setIconProvider(self._icons)
        self.finished.connect(self.deleteLater)
