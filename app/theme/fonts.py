"""The system's fonts in the sizes of the design. Sizes are logical px."""

from __future__ import annotations

from PySide6.QtGui import QFont, QFontDatabase

TINY_PX = 11
"""Table headers, axes, tags: the smallest anywhere but the letter in a badge."""
SMALL_PX = 12
"""Tables, controls, status."""
BODY_PX = 13
ANSWER_PX = 14
H2_PX = 15
H1_PX = 20


def general_font(size_px: int = SMALL_PX, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The system's proportional font."""
    return _sized(QFontDatabase.SystemFont.GeneralFont, size_px, weight)


def fixed_font(size_px: int = SMALL_PX, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The system's monospace font: figures, names of tensors, options as typed."""
    return _sized(QFontDatabase.SystemFont.FixedFont, size_px, weight)


def _sized(kind: QFontDatabase.SystemFont, size_px: int, weight: QFont.Weight) -> QFont:
    font = QFontDatabase.systemFont(kind)
    font.setPixelSize(size_px)
    font.setWeight(weight)
    return font
