"""What a command is."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Need(enum.Flag):
    """What must be so for a command to be usable."""

    NOTHING = 0
    MODEL = enum.auto()
    """A model is open."""
    PLAN = enum.auto()
    """It has been planned."""
    GRAPH = enum.auto()
    """It has operations: this version knows its architecture."""
    TOKENS = enum.auto()
    """It makes tokens."""
    RUNNABLE = enum.auto()
    """Its weights are here."""
    IDLE = enum.auto()
    """Nothing runs."""
    BUSY = enum.auto()
    """Something runs that can be stopped."""
    TRACE = enum.auto()
    """A run was recorded."""
    HELD = enum.auto()
    """The engine still holds what it recorded."""
    PROMPT = enum.auto()
    """There is a prompt."""
    TEXT = enum.auto()
    """There is a text to embed."""
    EMBEDDING = enum.auto()
    """A text was embedded."""
    ENGINE = enum.auto()
    """The engine answers."""
    DEVICE = enum.auto()
    """A device is selected."""
    LOADED = enum.auto()
    """It was loaded from a file."""


WHY_NOT: dict[Need, str] = {
    Need.ENGINE: "the engine is not ready",
    Need.MODEL: "open a model first",
    Need.PLAN: "this model has no plan",
    Need.GRAPH: "this version has no graph for this model",
    Need.TOKENS: "an embedding model makes no tokens",
    Need.RUNNABLE: "the file does not hold the weights",
    Need.IDLE: "applies when what runs has ended",
    Need.BUSY: "nothing is running",
    Need.PROMPT: "the prompt is empty",
    Need.TEXT: "the text is empty",
    Need.DEVICE: "select a device first",
    Need.LOADED: "the selected device is built in, or not here",
    Need.TRACE: "nothing measured yet",
    Need.EMBEDDING: "no text was embedded yet",
    Need.HELD: "the engine that recorded this run has ended; run again",
}
"""Why a command is disabled, in the order in which it is said."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One command. `keys` are portable key sequences, the first of them is shown."""

    id: str
    text: str
    tip: str
    keys: tuple[str, ...] = ()
    needs: Need = Need.NOTHING
    icon: str = ""
    checkable: bool = False
    group: str = ""
    """Commands of one group exclude each other."""


SEPARATOR = ""
"""In a menu: a line."""
