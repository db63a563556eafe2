"""The style sheet, made from a palette. Dynamic properties name the variants.

role      "rows" on tables, whose ring has room of its own
          "muted", "strong", "mono", "tiny", "problem", "h1", "h2" on labels; "panel", "bar", "card"
          on frames
bad       "true" on a field whose text cannot be used
kind      "primary", "link", "flat", "small" on buttons
segment   "first", "middle", "last" on buttons of a `Segment`
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING

from app.theme.fonts import BODY_PX, H1_PX, H2_PX, SMALL_PX, TINY_PX, fixed_font

if TYPE_CHECKING:
    from PySide6.QtGui import QFont

    from app.theme.colours import Palette

_COLOURS = (
    "bg0", "bg1", "bg2", "line", "line2", "ctl", "ink", "ink2", "ink3", "sel", "hover", "track",
    "inv", "invt", "alert",
)  # fmt: skip


def stylesheet(palette: Palette) -> str:
    """The style sheet of a palette."""
    values = {name: getattr(palette, name).name() for name in _COLOURS}
    return _SHEET.substitute(
        values,
        mono=_family(fixed_font()),
        tiny=TINY_PX,
        small=SMALL_PX,
        body=BODY_PX,
        h2=H2_PX,
        h1=H1_PX,
    )


def _family(font: QFont) -> str:
    return font.family().replace('"', "")


_SHEET = Template("""
QMainWindow, QDialog { background: $bg0; }
QMainWindow::separator { background: $line; width: 1px; height: 1px; }
QToolTip { background: $bg1; color: $ink; border: 1px solid $line2; padding: 3px 6px; }

QMenuBar { background: $bg2; color: $ink; padding: 0 8px; font-size: ${small}px; }
QMenuBar::item { padding: 5px 8px; background: transparent; }
QMenuBar::item:selected, QMenuBar::item:pressed { background: $hover; }
QMenu { background: $bg1; color: $ink; border: 1px solid $line2; padding: 4px 0; }
QMenu::item { padding: 5px 24px 5px 24px; }
QMenu::item:selected { background: $sel; }
QMenu::item:disabled { color: $ink3; }
QMenu::separator { height: 1px; background: $line; margin: 4px 0; }

QToolBar { background: $bg2; border: none; border-bottom: 1px solid $line; spacing: 0;
           padding: 0; }
QPushButton[kind="chip"] { min-height: 18px; padding: 0 5px; border-color: $line2; }
QPushButton[kind="chip"]:focus { border: 2px solid $ink; min-height: 16px; padding: 0 4px; }
QToolBar#answer_bar { background: $bg1; }
QStatusBar { background: $bg2; color: $ink2; border-top: 1px solid $line; }
QStatusBar::item { border: none; }
QStatusBar QLabel { color: $ink2; padding: 0 10px; border-right: 1px solid $line; }
QStatusBar QLabel[last="true"] { border-right: none; border-left: 1px solid $line; }

QLabel { color: $ink; background: transparent; }
QLabel:disabled { color: $ink3; }
QLabel[role="muted"] { color: $ink2; }
QLabel[role="strong"] { font-weight: 600; }
QLabel[role="alert"] { color: $alert; font-weight: 600; }
QLabel[role="mono"] { font-family: "$mono"; color: $ink2; }
QLabel[role="tiny"] { font-size: ${tiny}px; color: $ink2; }
QLabel[role="tiny_mono"] { font-family: "$mono"; font-size: ${tiny}px; color: $ink2; }
QLabel[role="problem"] { font-size: ${tiny}px; color: $alert; }
QLabel[role="body"] { font-size: ${body}px; }
QLabel[role="h1"] { font-size: ${h1}px; font-weight: 600; }
QLabel[role="h2"] { font-size: ${h2}px; font-weight: 600; }

QFrame[role="panel"] { background: $bg1; border: none; }
QFrame[role="footer"] { background: $bg2; border: none; border-top: 1px solid $line; }
QFrame[role="bar"] { background: $bg2; border: none; border-bottom: 1px solid $line; }
QFrame[role="message"] { background: $bg1; border: none; border-bottom: 1px solid $line;
                         border-left: 4px solid $ink; }
QFrame[role="card"] { background: $bg1; border: 1px solid $line; border-radius: 6px; }
QFrame[role="drop"] { background: $bg1; border: 1px dashed $ctl; border-radius: 6px; }
QFrame[role="drop"][over="true"] { border: 2px solid $ink; }
QFrame[role="rule"] { background: $line; border: none; }
QFrame[role="dock_title"] { background: $bg2; border: none; border-bottom: 1px solid $line; }
QWidget[role="page"] { background: $bg0; }
QWidget[role="sheet"] { background: $bg1; }

QPushButton, QToolButton[kind="button"] {
    background: $bg1; color: $ink; border: 1px solid $ctl; border-radius: 4px;
    padding: 0 10px; min-height: 26px; }
QPushButton:hover, QToolButton[kind="button"]:hover { background: $hover; }
QPushButton:pressed { background: $sel; }
QPushButton:disabled { color: $ink3; border-color: $line; }
QPushButton:focus { border: 2px solid $ink; padding: 0 9px; min-height: 24px; }
QPushButton[kind="primary"] { background: $inv; color: $invt; border-color: $inv;
                              font-weight: 600; }
QPushButton[kind="primary"]:hover { background: $ink2; border-color: $ink2; }
QPushButton[kind="primary"]:focus { border: 2px solid $ctl; }
QPushButton[kind="primary"]:disabled { background: $bg1; color: $ink3; border: 1px solid $line; }
QPushButton[kind="icon"] { background: transparent; border: none; padding: 0; min-height: 24px; }
QPushButton[kind="icon"]:hover { background: $hover; }
QPushButton[kind="icon"]:focus { border: 2px solid $ink; padding: 0; min-height: 20px; }
QPushButton[kind="small"] { min-height: 22px; padding: 0 8px; }
QPushButton[kind="small"]:focus { min-height: 20px; padding: 0 7px; }
QPushButton[kind="link"] { background: transparent; border: none; padding: 0 2px; min-height: 24px;
                           text-decoration: underline; text-align: left; }
QPushButton[kind="link"]:hover { background: $hover; }
QPushButton[kind="link"]:focus { border: 2px solid $ink; min-height: 20px; padding: 0; }
QToolButton { background: transparent; color: $ink; border: none; border-radius: 4px;
              padding: 2px 4px; }
QToolButton:hover { background: $hover; }
QToolButton:disabled { color: $ink3; }
QToolButton:focus { border: 2px solid $ink; padding: 0 2px; }

QToolButton[segment] { background: $bg1; border: 1px solid $ctl; border-radius: 0;
                       padding: 0 10px; min-height: 26px; }
QToolButton[segment="middle"], QToolButton[segment="last"] { border-left: none; }
QToolButton[segment="first"] { border-top-left-radius: 4px; border-bottom-left-radius: 4px; }
QToolButton[segment="last"] { border-top-right-radius: 4px; border-bottom-right-radius: 4px; }
QToolButton[segment]:hover { background: $hover; }
QToolButton[segment]:checked { background: $inv; color: $invt; border-color: $inv;
                               font-weight: 600; }
QToolButton[segment]:focus { border: 2px solid $ink2; padding: 0 9px; min-height: 24px; }
QToolButton[segment]:disabled { color: $ink3; border-color: $line; background: $bg1; }

QLineEdit, QPlainTextEdit, QTextBrowser, QSpinBox, QComboBox {
    background: $bg1; color: $ink; border: 1px solid $ctl; border-radius: 4px;
    selection-background-color: $inv; selection-color: $invt; }
QLineEdit, QSpinBox, QComboBox { padding: 0 6px; min-height: 26px; }
QLineEdit:focus, QPlainTextEdit:focus, QTextBrowser:focus, QSpinBox:focus, QComboBox:focus {
    border: 2px solid $ink; }
QLineEdit[bad="true"] { border-color: $alert; }
QLineEdit[bad="true"]:focus { border: 2px solid $alert; }
QLineEdit:disabled, QSpinBox:disabled, QComboBox:disabled, QPlainTextEdit:disabled {
    color: $ink3; border-color: $line; background: $bg2; }
QComboBox { padding-right: 0; }
QComboBox::drop-down { border: none; width: 18px; }
QComboBox::down-arrow { image: none; width: 0; }
QComboBox QAbstractItemView { border: 1px solid $line2; padding: 4px 0; }
QComboBox QAbstractItemView::item { min-height: 24px; padding: 0 8px; }
QComboBox QLineEdit { border: none; min-height: 0; padding: 0; background: transparent; }
QPlainTextEdit[role="plain"], QTextBrowser[role="plain"] { border: none; }
QPlainTextEdit[role="plain"]:focus, QTextBrowser[role="plain"]:focus { border: none; }

QSlider { min-height: 24px; }
QSlider::groove:horizontal { height: 4px; background: $track; border-radius: 2px; }
QSlider::sub-page:horizontal { background: $ink2; border-radius: 2px; }
QSlider::sub-page:horizontal:disabled { background: $track; }
QSlider::handle:horizontal { width: 10px; height: 10px; margin: -5px 0; border-radius: 7px;
                             border: 2px solid $ink; background: $bg1; }
QSlider::handle:horizontal:focus { background: $ink; }
QSlider::handle:horizontal:disabled { border-color: $ctl; }

QTableView, QTreeView, QListView { background: $bg1; color: $ink; border: none; outline: none;
    gridline-color: $bg0; selection-background-color: $sel; selection-color: $ink; }
QTableView[role="rows"] { border: 2px solid $bg1; }
QTableView::item:hover, QListView::item:hover { background: $hover; }
QTableView::item:selected, QListView::item:selected { background: $sel; color: $ink; }
QTableView[role="rows"]:focus, QTableView:focus, QTreeView:focus, QListView:focus {
    border: 2px solid $ink; }
QHeaderView { background: $bg1; border: none; }
QHeaderView::section { background: $bg1; color: $ink2; border: none; font-size: ${tiny}px;
                       border-bottom: 1px solid $line; padding: 3px 4px; }
QTableCornerButton::section { background: $bg1; border: none; }

QTabBar { background: $bg2; }
QTabBar::tab { background: $bg2; color: $ink2; border: none; padding: 5px 12px; min-height: 18px; }
QTabBar::tab:selected { color: $ink; background: $bg1; border-bottom: 2px solid $ink;
                        font-weight: 600; }
QTabBar::tab:hover:!selected { background: $hover; }
QTabBar::tab:focus { border-bottom: 2px solid $ink; }

QProgressBar { background: $track; border: none; border-radius: 2px; max-height: 4px; }
QProgressBar::chunk { background: $ink; border-radius: 2px; }

QScrollArea { background: $bg1; border: none; }

QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: $line2; border-radius: 3px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 24px; }
QScrollBar::handle:horizontal { min-width: 24px; }
QScrollBar::handle:hover { background: $ctl; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QAbstractScrollArea::corner { background: transparent; }
""")
