"""What each device's memory holds, predicted, all devices on one scale.

view    MemoryView: the bars, hover, keys
facts   pure: bytes by device and part, capacity, what is held twice
layout  pure: facts to shapes
paint   shapes to pixels
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.memory.view import MemoryView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> MemoryView:
    """The pane."""
    return MemoryView(state, theme, parent)
