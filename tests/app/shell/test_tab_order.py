"""Asking for what Tab stops at changes nothing."""

import re

import shiboken6
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QScrollArea, QWidget

from app.shell.tab_order import tab_stops


def owner_of(widget):
    """The address of the widget whose wrapper, as it goes, takes this one's along; 0 for none."""
    found = re.search(r"parent\.+ <[^(>]*\((0x[0-9a-f]+)\)", shiboken6.dump(widget))
    return int(found.group(1), 16) if found else 0


def test_asking_for_the_stops_leaves_widgets_to_those_that_they_belong_to(qtbot):
    window = QWidget()
    qtbot.addWidget(window)
    row = QHBoxLayout(window)
    row.addWidget(QScrollArea(window))
    edit = QLineEdit(window)
    row.addWidget(edit)
    window.show()

    stops = tab_stops([window], window)

    assert [type(widget).__name__ for widget in stops] == ["QScrollArea", "QLineEdit"]
    assert owner_of(edit) == shiboken6.getCppPointer(window)[0]
    assert owner_of(window) == 0
