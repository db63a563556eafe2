"""Whom a wish to stop concerns."""

import pytest

from engine.errors import Stopped
from engine.stopping import StopSwitch


def test_a_job_admitted_before_the_wish_is_stopped_a_later_one_is_not():
    switch = StopSwitch()
    before = switch.admit()
    switch.ask()
    after = switch.admit()

    assert (switch.is_stopped(before), switch.is_stopped(after)) == (True, False)


def test_a_stopped_job_cannot_begin_and_leaves_the_word_set():
    switch = StopSwitch()
    job = switch.admit()
    switch.ask()

    with pytest.raises(Stopped):
        switch.begin(job)
    assert switch.is_asked()


def test_a_later_job_takes_the_word_back():
    switch = StopSwitch()
    switch.ask()

    switch.begin(switch.admit())

    assert not switch.is_asked()
