"""Which requests are done, and in what order."""

import threading

import pytest

from engine.core.options import Options
from engine.service.inbox import Inbox, Job
from engine.service.messages import OpenModel, Replan, StartRun


def replan(number: int) -> Job:
    return Job(number, Replan(number, Options()))


def run(number: int) -> Job:
    return Job(number, StartRun(number, "", 1))


def open_model(number: int) -> Job:
    return Job(number, OpenModel(number, "x.gguf"))


@pytest.mark.parametrize(
    ("put", "got"),
    [
        ([replan(1), replan(2), replan(3)], [3]),
        ([run(1), run(2)], [1, 2]),
        ([replan(1), run(2), replan(3)], [1, 2, 3]),
        ([replan(1), open_model(2), replan(3), replan(4)], [1, 2, 4]),
    ],
    ids=["newest wins", "runs wait", "a run keeps its options", "a model keeps its plans apart"],
)
def test_a_plan_replaces_the_one_right_before_it_only(put, got):
    inbox = Inbox()

    for job in put:
        inbox.put(job)

    assert [inbox.get().number for _ in got] == got


def test_a_closed_inbox_gives_none_whatever_waits():
    inbox = Inbox()
    inbox.put(run(1))

    inbox.close()

    assert inbox.get() is None


def test_get_waits_until_something_comes():
    inbox = Inbox()
    later = threading.Timer(0.01, inbox.put, args=(run(1),))
    later.start()

    assert inbox.get().number == 1
    later.join()
