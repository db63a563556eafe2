"""WasNow: both sentences of a node that a change moved or re-reasoned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.theme.fonts import BODY_PX, SMALL_PX
from app.views.inspector.parts import Tag, text_label
from app.views.inspector.rich import rich_sentence

if TYPE_CHECKING:
    from app.theme.theme import Theme
    from engine.core.explain import Explanation


class WasNow(QWidget):
    """Two rows: was, now."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sentences = (text_label(BODY_PX), text_label(BODY_PX))
        self._tags = (Tag(theme), Tag(theme))
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(8)
        grid.setColumnStretch(1, 1)
        top = Qt.AlignmentFlag.AlignTop
        for row, word in enumerate(("was", "now")):
            label = text_label(SMALL_PX, role="muted")
            label.setSizePolicy(QLabel().sizePolicy())
            label.setWordWrap(False)
            label.setText(word)
            side = QVBoxLayout()
            side.setSpacing(4)
            side.addWidget(label)
            side.addWidget(self._tags[row])
            side.addStretch(1)
            grid.addLayout(side, row, 0)
            grid.addWidget(self._sentences[row], row, 1, top)

    def set_explanations(self, was: Explanation, now: Explanation) -> None:
        """Show another node."""
        for label, tag, one in zip(self._sentences, self._tags, (was, now), strict=True):
            label.setText(rich_sentence(one.sentence))
            tag.set_tag(one.tag)
