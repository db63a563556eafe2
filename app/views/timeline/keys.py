"""The keys of the pane, while one of its canvases has the focus."""

from __future__ import annotations

import enum

from PySide6.QtCore import Qt


class Command(enum.StrEnum):
    """What a key does."""

    ZOOM_IN = "zoom in"
    ZOOM_OUT = "zoom out"
    LEFT = "pan left"
    RIGHT = "pan right"
    FRAME = "frame the selection"
    WHOLE = "whole run"
    PREVIOUS = "previous slice of the lane"
    NEXT = "next slice of the lane"
    UPSTREAM = "where it comes from"
    DOWNSTREAM = "where it goes"
    FAULT = "what the idle moment waited for"
    CLEAR = "clear the range, then the selection"


KEYS = {
    Qt.Key.Key_W: Command.ZOOM_IN,
    Qt.Key.Key_S: Command.ZOOM_OUT,
    Qt.Key.Key_A: Command.LEFT,
    Qt.Key.Key_D: Command.RIGHT,
    Qt.Key.Key_Plus: Command.ZOOM_IN,
    Qt.Key.Key_Minus: Command.ZOOM_OUT,
    Qt.Key.Key_Left: Command.LEFT,
    Qt.Key.Key_Right: Command.RIGHT,
    Qt.Key.Key_F: Command.FRAME,
    Qt.Key.Key_0: Command.WHOLE,
    Qt.Key.Key_Comma: Command.PREVIOUS,
    Qt.Key.Key_Period: Command.NEXT,
    Qt.Key.Key_BracketLeft: Command.UPSTREAM,
    Qt.Key.Key_BracketRight: Command.DOWNSTREAM,
    Qt.Key.Key_J: Command.FAULT,
    Qt.Key.Key_Escape: Command.CLEAR,
}


def command_of(key: int, modifiers: Qt.KeyboardModifier) -> Command | None:
    """The command of a key without Ctrl, Alt or Meta."""
    others = ~(Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier)
    if modifiers & others:
        return None
    return KEYS.get(Qt.Key(key))
