"""Devices on paper from lines, as planning knows them."""

from engine.backends.null.virtual import parse_paper
from engine.core.devices import DeviceFacts


def parse_virtual(text: str) -> DeviceFacts:
    """Return the facts that a line describes."""
    return parse_paper(text).facts
