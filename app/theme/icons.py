"""Icons: 16 px SVG files of one colour, tinted when they are loaded."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from engine.paths import resources_dir

ICON_PX = 16
_RATIOS = (1, 2, 3)


def icon(name: str, colour: QColor, disabled: QColor) -> QIcon:
    """The icon `name` in one colour, and in another while its control is disabled.

    Raises FileNotFoundError for a name without a file.
    """
    source = (resources_dir() / "icons" / f"{name}.svg").read_text("utf-8")
    made = QIcon()
    for mode, tint in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, disabled)):
        tinted = source.replace("currentColor", tint.name()).encode()
        for ratio in _RATIOS:
            made.addPixmap(_rendered(tinted, ratio), mode)
    return made


def _rendered(source: bytes, ratio: int) -> QPixmap:
    pixmap = QPixmap(QSize(ICON_PX, ICON_PX) * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(QByteArray(source)).render(painter, QRectF(0, 0, ICON_PX, ICON_PX))
    painter.end()
    return pixmap
