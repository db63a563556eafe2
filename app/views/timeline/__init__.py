"""What a run measured, on a time axis: a lane a device, a lane a link that ends in it.

view          TimelineView: the parts together, keys, selection, following a run
scale         pure: the shown time, zoom, pan, ticks
store         TraceStore: spans by lane with their pyramids, grown as a run goes on
scene         Scene: what all parts draw from
lanes         pure: which lanes there are and where they stand
analysis      pure: idle time, links, the critical path, ready to be drawn
analyst       Analyst: works something out on a thread of its own
findings      Findings: keeps the analysis and the path of a scene up to date
navigation    pure: the next slice, the flow, the rows of a selection
sum_check     pure: the line in which everything must add up
device_words  pure: idle time, links and the critical path in words
slices        pure: what a lane shows as rectangles
lane_canvas   LaneCanvas: the lanes
lane_paint    slices, marks and the selection to pixels
device_paint  idle time and the critical path to pixels
lane_heads    LaneHeads: names of lanes, beside them
foot          Foot: the lines below the lanes
device_lines  DeviceLines: what each device did, in as many lines as it takes
overview      OverviewCanvas: the whole run and the part shown
ruler         RulerCanvas: the axis
keys          the keys of the pane
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.views.timeline.view import TimelineView

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme


def make(state: AppState, theme: Theme, parent: QWidget | None = None) -> TimelineView:
    """The pane."""
    return TimelineView(state, theme, parent)
