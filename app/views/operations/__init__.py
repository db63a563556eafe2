"""Which operations of the open model each device computes, and how right.

view   OperationsView: the matrix, its filter, all of the selected case below it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.operations.view import OperationsView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(
    state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
) -> OperationsView:
    """The pane."""
    return OperationsView(state, theme, actions, parent)
