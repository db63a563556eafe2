"""Where Tab goes: pane after pane, and in each in the order in which its widgets were made.

Qt's own order is that of making in the whole window: a message would come after everything else,
the graph before the panes at its left.

Qt's chain is not followed: PySide (6.10.3) makes the widget that nextInFocusChain() gives a child
of the one that was asked, and deletes it with that one, which may be a scroll bar nobody holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

if TYPE_CHECKING:
    from collections.abc import Sequence


def tab_stops(panes: Sequence[QWidget], window: QWidget) -> list[QWidget]:
    """The widgets that Tab stops at, in order."""
    linked = window.findChildren(QWidget)
    return [
        widget
        for pane in panes
        for widget in linked
        if (widget is pane or pane.isAncestorOf(widget)) and _takes_tab(widget)
    ]


def go_to_next(panes: Sequence[QWidget], window: QWidget, *, step: int) -> bool:
    """Give the next stop the focus, or the one before; False if there is none."""
    stops = tab_stops(panes, window)
    if not stops:
        return False
    focused = QApplication.focusWidget()
    here = stops.index(focused) if focused in stops else (-1 if step > 0 else 0)
    reason = Qt.FocusReason.TabFocusReason if step > 0 else Qt.FocusReason.BacktabFocusReason
    stops[(here + step) % len(stops)].setFocus(reason)
    return True


def _takes_tab(widget: QWidget) -> bool:
    takes = bool(widget.focusPolicy().value & Qt.FocusPolicy.TabFocus.value)
    usable = widget.focusProxy() is None and widget.isVisible() and widget.isEnabled()
    return takes and usable and not _is_other_choice(widget)


def _is_other_choice(widget: QWidget) -> bool:
    """Whether it is a choice of a segment that is not made: arrow keys go there."""
    group = widget.group() if isinstance(widget, QAbstractButton) else None
    if group is None or not group.exclusive():
        return False
    return group.checkedButton() not in (None, widget)
