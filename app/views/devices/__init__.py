"""Every device, those left out, and how each got here.

view   DevicesView: the table, the card, what can be done with the selected one
card   DeviceCard: an entry's facts, and how it got here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.devices.view import DevicesView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(
    state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
) -> DevicesView:
    """The pane."""
    return DevicesView(state, theme, actions, parent)
