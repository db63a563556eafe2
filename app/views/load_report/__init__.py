"""Every path that was tried to load backends, and what became of it.

view   LoadReportView: the table, its filter, all of the selected row below it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.load_report.view import LoadReportView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(
    state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
) -> LoadReportView:
    """The pane."""
    return LoadReportView(state, theme, actions, parent)
