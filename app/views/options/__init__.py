"""Every option of the table, in its order: what it is, what it is set to, what it does here.

view       OptionsView: the sections, and the row below them that copies and resets
section    Section: a heading that folds its rows away, and says how many of them were changed
row        OptionRow: label, flag, control, reset, and a note below
fields     the controls: a text, a choice, a switch
overrides  OverridesEditor: rules for weights by name, with what each matches
groups     pure: which option stands in which section, and its label
values     pure: what an option's value looks like in a field, and back
notes      pure: what stands below an option, and why one has no effect
rules      pure: which weights a rule matches, and what is wrong with it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.options.view import OptionsView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(
    state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
) -> OptionsView:
    """The pane."""
    return OptionsView(state, theme, actions, parent)
