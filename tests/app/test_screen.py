"""Whether a window can be opened is found out before Qt is asked in this process."""

import sys

import pytest

from app.main import main
from app.screen import no_screen

pytestmark = pytest.mark.skipif(
    sys.platform in {"win32", "darwin"}, reason="these systems always have a screen"
)


@pytest.fixture
def no_display(monkeypatch):
    for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_display_that_is_the_reason(no_display):
    assert no_screen() == "neither DISPLAY nor WAYLAND_DISPLAY is set"


def test_a_display_that_is_dead_is_found_out(no_display, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":7654")

    assert no_screen()


def test_a_chosen_platform_is_taken(no_display, monkeypatch):
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")

    assert no_screen() == ""


def test_the_command_line_says_what_can_be_used_instead(no_display, capsys):
    assert main([]) == 1

    said = capsys.readouterr().err
    assert said.startswith("No window can be opened here (neither DISPLAY")
    assert "python -m app --headless-demo" in said
