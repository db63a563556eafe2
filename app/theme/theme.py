"""Theme: the palette in use, following the system's colour scheme or forced."""

from __future__ import annotations

import enum

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QPalette

from app.theme.colours import DARK, LIGHT, Palette
from app.theme.icons import icon
from app.theme.qss import stylesheet


class ThemeChoice(enum.StrEnum):
    """What a person chose."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class Theme(QObject):
    """The palette and who follows it. GUI thread only."""

    changed = Signal(object)
    """Carries the new Palette."""

    def __init__(
        self, choice: ThemeChoice = ThemeChoice.SYSTEM, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.choice = choice
        self.palette = self._chosen()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_scheme_changed)

    @property
    def name(self) -> str:
        """The palette's name, "light" or "dark"."""
        return self.palette.name

    def choose(self, choice: ThemeChoice) -> None:
        """Force a theme, or follow the system again."""
        self.choice = choice
        self._update()

    def icon(self, name: str) -> QIcon:
        """An icon in ink."""
        return icon(name, self.palette.ink, self.palette.ink3)

    def inverse_icon(self, name: str) -> QIcon:
        """An icon for a primary button."""
        return icon(name, self.palette.invt, self.palette.ink3)

    def stylesheet(self) -> str:
        """The style sheet of the palette."""
        return stylesheet(self.palette)

    def qt_palette(self) -> QPalette:
        """Qt's palette in these colours, for what the style sheet does not reach."""
        return qt_palette(self.palette)

    def _chosen(self) -> Palette:
        if self.choice is ThemeChoice.SYSTEM:
            dark = QGuiApplication.styleHints().colorScheme() is Qt.ColorScheme.Dark
            return DARK if dark else LIGHT
        return DARK if self.choice is ThemeChoice.DARK else LIGHT

    def _on_scheme_changed(self, _scheme: object) -> None:
        self._update()

    def _update(self) -> None:
        palette = self._chosen()
        if palette is not self.palette:
            self.palette = palette
            self.changed.emit(palette)


def qt_palette(colours: Palette) -> QPalette:
    """Qt's palette in the colours of a theme."""
    roles: dict[QPalette.ColorRole, QColor] = {
        QPalette.ColorRole.Window: colours.bg0,
        QPalette.ColorRole.WindowText: colours.ink,
        QPalette.ColorRole.Base: colours.bg1,
        QPalette.ColorRole.AlternateBase: colours.bg2,
        QPalette.ColorRole.Text: colours.ink,
        QPalette.ColorRole.PlaceholderText: colours.ink3,
        QPalette.ColorRole.Button: colours.bg2,
        QPalette.ColorRole.ButtonText: colours.ink,
        QPalette.ColorRole.ToolTipBase: colours.bg1,
        QPalette.ColorRole.ToolTipText: colours.ink,
        QPalette.ColorRole.Highlight: colours.sel,
        QPalette.ColorRole.HighlightedText: colours.ink,
        QPalette.ColorRole.Link: colours.ink,
        QPalette.ColorRole.LinkVisited: colours.ink,
        QPalette.ColorRole.Accent: colours.ink,
    }
    made = QPalette()
    for role, colour in roles.items():
        made.setColor(role, colour)
    for role in (
        QPalette.ColorRole.WindowText,
        QPalette.ColorRole.Text,
        QPalette.ColorRole.ButtonText,
    ):
        made.setColor(QPalette.ColorGroup.Disabled, role, colours.ink3)
    return made
