"""The splits of the shown plan as a table.

view      SplitsView: the table and its links to the selection
delegate  SplitDelegate: badges, monospace figures, folded lines
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.splits.view import SplitsView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> SplitsView:
    """The pane."""
    return SplitsView(state, theme, parent)
