"""The graph: a row a layer, a column an operation; cuts and copies stand between columns.

names       short words for operations
columns     GraphShape: row and column of every computed node, from the graph alone
block       the layered drawing of one layer
placed      device, split, cut and copied bytes of every cell; alike layers; differences
layout      rectangles for a size, a zoom and an opened layer; level of detail
scene       everything one picture is painted from
paint_rows  the matrix
paint_open  the opened layer
gutter      the figures at the right
timings     measured time a layer
words       sizes, the title's fact, tooltips
canvas      GraphCanvas: mouse, keys, selection
title       the title row and its legend
view        GraphView: follows AppState
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.graph.view import GraphView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> QWidget:
    """The graph pane."""
    return GraphView(state, theme, parent)
