"""Why the selected operation is where it is, and what its split took.

view         InspectorView: both cards in one scrolling pane
why_card     WhyCard: device, sentence, pass row, candidates, neighbours
was_now      WasNow: both sentences of a node in difference mode
pass_row     PassRow: the steps of the passes, the deciding one inked
candidates   CandidatesTable: what each device answered
node_facts   pure: facts of a node as words and links
rich         pure: sentences as rich text
split_card   SplitCard: time, copies and cause of the selected split, and of splits like it
split_facts  pure: the figures of that card
histogram    Histogram: times of alike splits
parts        small widgets that the cards share
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.inspector.view import InspectorView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> InspectorView:
    """The pane."""
    return InspectorView(state, theme, parent)
