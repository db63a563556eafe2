"""Small widgets that the cards share: selectable text, a tag, a rule, a device's badge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy

from app.theme.fonts import TINY_PX, fixed_font, general_font
from app.theme.paint import BADGE_PX, badge_pixmap

if TYPE_CHECKING:
    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme

_TEXT_KEYS = (
    Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.LinksAccessibleByMouse
)
_LINK_KEYS = _TEXT_KEYS | Qt.TextInteractionFlag.LinksAccessibleByKeyboard


def text_label(
    size_px: int, *, role: str = "", weight: QFont.Weight = QFont.Weight.Normal
) -> QLabel:
    """A label whose text wraps and can be selected."""
    label = QLabel()
    label.setFont(general_font(size_px, weight))
    label.setWordWrap(True)
    label.setTextInteractionFlags(_TEXT_KEYS)
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    if role:
        label.setProperty("role", role)
    return label


def link_label(size_px: int) -> QLabel:
    """A wrapping rich text label whose links answer to mouse and keyboard."""
    label = text_label(size_px)
    label.setTextFormat(Qt.TextFormat.RichText)
    label.setTextInteractionFlags(_LINK_KEYS)
    label.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return label


def mono_label(size_px: int, weight: QFont.Weight = QFont.Weight.Normal) -> QLabel:
    """A selectable monospace line."""
    label = QLabel()
    label.setFont(fixed_font(size_px, weight))
    label.setTextInteractionFlags(_TEXT_KEYS)
    return label


class Rule(QFrame):
    """A line of one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "rule")
        self.setFixedHeight(1)


class Tag(QLabel):
    """ggml's tag of a cause in a box."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setFont(fixed_font(TINY_PX))
        self.setTextInteractionFlags(_TEXT_KEYS)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Maximum)
        self._on_theme()
        theme.changed.connect(self._on_theme)

    def set_tag(self, text: str) -> None:
        """Show another tag; nothing hides it."""
        self.setText(text)
        self.setVisible(bool(text))

    def _on_theme(self, _palette: object = None) -> None:
        palette = self._theme.palette
        self.setStyleSheet(
            f"border: 1px solid {palette.ctl.name()}; border-radius: 3px; padding: 1px 5px;"
            f"color: {palette.ink2.name()}; font-size: {TINY_PX}px;"
            f'font-family: "{self.font().family()}";'
        )


class Badge(QLabel):
    """A device's badge."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(BADGE_PX, BADGE_PX)

    def set_look(self, look: DeviceLook) -> None:
        """Show another device."""
        self.setPixmap(badge_pixmap(look, BADGE_PX, self.devicePixelRatioF()))
        self.setAccessibleName(look.name)
        self.setToolTip(look.name)
