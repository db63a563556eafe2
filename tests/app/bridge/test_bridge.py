"""Answers arrive as signals in the GUI thread; spans are asked for while something runs."""

import sys
import threading
from pathlib import Path

import pytest

from app.bridge.bridge import Bridge
from app.bridge.engine_host import EngineHost
from engine.service.messages import (
    EngineDied,
    EngineReady,
    ExportTrace,
    OpenModel,
    StartRun,
    TraceArrived,
)

CHILD = Path(__file__).parent / "child.py"


class Ears:
    """Keeps answers and the thread they came in."""

    def __init__(self, bridge: Bridge) -> None:
        self.answers: list[object] = []
        self.threads: set[threading.Thread] = set()
        bridge.answered.connect(self.hear)

    def hear(self, answer: object) -> None:
        self.answers.append(answer)
        self.threads.add(threading.current_thread())

    def kinds(self) -> list[type]:
        return [type(answer) for answer in self.answers]


@pytest.fixture
def bridge(qapp):
    bridge = Bridge(EngineHost([sys.executable, str(CHILD), "good"]))
    bridge.ears = Ears(bridge)
    bridge.start()
    yield bridge
    bridge.close()
    bridge.deleteLater()


def wait_for(qtbot, bridge, kind, n=1):
    qtbot.waitUntil(lambda: bridge.ears.kinds().count(kind) >= n, timeout=30_000)


def test_answers_arrive_in_the_gui_thread(bridge, qtbot):
    wait_for(qtbot, bridge, EngineReady)

    assert bridge.ears.threads == {threading.main_thread()}


def test_nothing_is_polled_while_nothing_runs(bridge, qtbot):
    wait_for(qtbot, bridge, EngineReady)
    bridge.send(OpenModel(bridge.next_id(), "x"))
    qtbot.waitUntil(lambda: len(bridge.ears.answers) == 2, timeout=30_000)

    assert not bridge._poll_timer.isActive()


def test_spans_are_polled_while_a_run_goes_on_and_each_only_once(bridge, qtbot):
    wait_for(qtbot, bridge, EngineReady)

    bridge.send(StartRun(bridge.next_id(), "hello", 4))
    wait_for(qtbot, bridge, TraceArrived, 3)

    snapshots = [a.snapshot for a in bridge.ears.answers if isinstance(a, TraceArrived)]
    assert [(s.since, s.seq) for s in snapshots[:3]] == [(0, 5), (5, 5), (5, 5)]


def test_a_death_ends_polling_and_a_restart_brings_a_ready_engine(bridge, qtbot):
    wait_for(qtbot, bridge, EngineReady)
    bridge.send(StartRun(bridge.next_id(), "hello", 4))
    wait_for(qtbot, bridge, TraceArrived)

    bridge.send(ExportTrace(bridge.next_id(), Path("x")))
    wait_for(qtbot, bridge, EngineDied)
    bridge.restart()
    wait_for(qtbot, bridge, EngineReady, 2)

    assert not bridge._poll_timer.isActive()


def test_request_ids_never_repeat(bridge):
    assert len({bridge.next_id() for _ in range(10)}) == 10
