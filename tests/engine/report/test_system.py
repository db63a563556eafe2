"""What the system says of itself."""

import os

from engine.backends.null.presets import plain
from engine.report.system import device_summary, host_memory_bytes, physical_cores


def test_there_is_memory_and_at_least_one_core():
    assert host_memory_bytes() > 2**28
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)


def test_a_device_is_told_with_its_facts():
    summary = device_summary(plain("A", 5), virtual=True)

    assert (summary.name, summary.memory_free, summary.virtual) == ("A", 5, True)
