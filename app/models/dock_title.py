"""DockTitle: what a pane asks its dock to show in the title bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DockTitle:
    """A title, one grey fact beside it, and a fact at the right end.

    `chip` names an active filter or selection, such as "split 99"; the view's `clear_chip` ends it.
    """

    title: str
    fact: str = ""
    right: str = ""
    chip: str = ""
