"""Queued work and events, without a device: waiting is a function that the test gives."""

from types import SimpleNamespace

import pytest

from engine.backends.ggml.events import GgmlEvent, WorkQueue


@pytest.fixture
def waits():
    """Grows with every wait for the stream."""
    return []


@pytest.fixture
def stream(waits):
    return WorkQueue(lambda: waits.append("stream"))


@pytest.fixture
def event(waits):
    """An event of a library that notes what is asked of it."""
    api = SimpleNamespace(
        ggml_backend_event_free=lambda handle: None,
        ggml_backend_event_record=lambda handle, backend: waits.append("recorded"),
        ggml_backend_event_synchronize=lambda handle: waits.append("event"),
    )
    return GgmlEvent(SimpleNamespace(api=api), family=1, handle=7)


def test_work_is_told_when_somebody_waited_for_the_stream(stream):
    told = []
    work = stream.add(None)
    work.on_complete(told.append)
    assert told == []

    stream.synchronize()

    assert len(told) == 1
    assert told[0].end_ns >= told[0].start_ns > 0


def test_who_asks_later_is_told_at_once(stream, waits):
    work = stream.add(None)
    work.synchronize()
    told = []

    work.on_complete(told.append)
    work.synchronize()

    assert len(told) == 1
    assert waits == ["stream"]


def test_work_begins_when_the_work_before_it_ended(stream):
    told = []
    for _ in range(2):
        stream.add(None).on_complete(told.append)

    stream.synchronize()

    first, second = told
    assert second.start_ns >= first.end_ns
    assert second.end_ns >= second.start_ns


def test_objects_are_kept_until_the_work_is_done(stream):
    kept = []
    work = stream.add(kept)
    assert work._keeps is kept

    stream.synchronize()

    assert work._keeps is None


def test_an_event_that_was_never_recorded_stands_for_nothing(event, waits):
    event.synchronize()

    assert waits == []
    assert not event.is_recorded


def test_an_event_ends_what_was_queued_before_it(stream, event, waits):
    told = []
    stream.add(None).on_complete(lambda done: told.append("before"))
    event.record(3, stream)
    stream.add(None).on_complete(lambda done: told.append("after"))

    event.synchronize()

    assert told == ["before"]
    assert waits == ["recorded", "event"]
    stream.synchronize()
    assert told == ["before", "after"]


def test_an_event_tells_when_its_work_is_seen_to_be_done(stream, event):
    told = []
    stream.add(None)
    event.record(3, stream)
    event.on_complete(told.append)
    assert told == []

    event.synchronize()

    assert len(told) == 1


def test_an_event_behind_nothing_is_done(stream, event):
    told = []
    event.record(3, stream)

    event.on_complete(told.append)

    assert len(told) == 1
