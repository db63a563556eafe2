"""The strip of layers: where each runs (top) and where its weights are (foot).

strip   cells, their places and their words; pure
model   the same cells as a list model, for keyboards and screen readers
canvas  LayerStrip: paints and picks
view    LayersView: follows AppState
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.layers.view import LayersView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> QWidget:
    """The layers pane; its `fact` and `fact_changed` are for the dock's title."""
    return LayersView(state, theme, parent)
