"""Progress on a terminal: after a second, with names and counts."""

import io

import pytest

from engine.cli.progress import INTERVAL_S, QUIET_S, ProgressLine, progress_text
from engine.core.summary import Progress


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_over_in_a_second_shows_nothing():
    screen, clock = Terminal(), Clock()
    line = ProgressLine(screen, clock)

    line(Progress("loading", 1, 2))
    line.clear()

    assert screen.getvalue() == ""


def test_what_takes_longer_shows_its_name_and_count_ten_times_a_second():
    screen, clock = Terminal(), Clock()
    line = ProgressLine(screen, clock)
    clock.now_s += QUIET_S

    line(Progress("compiling add for CPU", 3, 90))
    clock.now_s += INTERVAL_S / 2
    line(Progress("compiling mul for CPU", 4, 90))
    shown = screen.getvalue()

    assert "compiling add for CPU  3 of 90" in shown
    assert "mul" not in shown


def test_the_line_is_taken_away():
    screen, clock = Terminal(), Clock()
    line = ProgressLine(screen, clock)
    clock.now_s += QUIET_S
    line(Progress("loading", 1, 2))

    line.clear()

    assert screen.getvalue().endswith("\r\033[K")


def test_a_file_gets_no_progress():
    file, clock = io.StringIO(), Clock()
    line = ProgressLine(file, clock)
    clock.now_s += QUIET_S

    line(Progress("loading", 1, 2))

    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("fetching", 0, 0), "fetching"),
        (Progress("compiling x", 2, 40), "compiling x  2 of 40"),
        (Progress("loading y", 2**20, 2**22), "loading y  1.00 of 4.00 MiB"),
    ],
    ids=["unknown total", "things", "bytes"],
)
def test_large_counts_are_bytes(progress, text):
    assert progress_text(progress) == text
