"""A whole window with its engine in a process of its own, and a child that plays one."""

import sys
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel

from app.bridge.engine_host import EngineHost
from app.main import create_app
from app.state.settings import Settings

CHILD = Path(__file__).parent / "bridge" / "child.py"


def label_view(name, state, theme, parent):
    """Stand for a view: the frame is what is tested."""
    view = QLabel(name, parent)
    view.setObjectName(name)
    return view


@pytest.fixture
def settings(tmp_path):
    return Settings(tmp_path / "settings.ini")


@pytest.fixture
def make_app(qtbot, settings):
    """Return a function that starts a window; `child` is a mode of child.py, none a real engine."""
    apps = []

    def make(child: str = "", **options):
        host = EngineHost([sys.executable, str(CHILD), child]) if child else EngineHost()
        options = {"settings": settings, "make": label_view} | options
        app = create_app(host=host, exec_app=False, **options)
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def ready_app(make_app, qtbot):
    """Return a window whose real engine is ready."""
    app = make_app()
    messages = app.window.messages

    qtbot.waitUntil(lambda: app.controller.is_ready or bool(messages.messages), timeout=60_000)

    assert app.controller.is_ready, messages.messages[0].text
    return app
