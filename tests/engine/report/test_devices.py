"""Devices for people."""

from engine.backends.null.presets import plain
from engine.report.devices import device_summary


def test_a_device_is_told_with_its_facts():
    summary = device_summary(plain("A", 5), virtual=True)

    assert (summary.name, summary.memory_free, summary.virtual) == ("A", 5, True)
