"""Inbox: requests that wait their turn, in the order they came."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from engine.service.messages import Replan, Request


@dataclass(frozen=True, slots=True)
class Job:
    """A request and its number, by which a later wish to stop knows it."""

    number: int
    request: Request


class Inbox:
    """One thread puts, another gets.

    A `Replan` takes the place of one that waits right before it: nobody would look at the older
    one's plan. One with something else in between stays, since that was meant to happen with its
    options.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, job: Job) -> None:
        """Add a job."""
        with self._changed:
            is_newer_plan = isinstance(job.request, Replan)
            if is_newer_plan and self._jobs and isinstance(self._jobs[-1].request, Replan):
                self._jobs.pop()
            self._jobs.append(job)
            self._changed.notify()

    def get(self) -> Job | None:
        """The next job, waited for; None once closed: what still waits is not done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            return None if self._closed else self._jobs.popleft()

    def close(self) -> None:
        """Let `get` give None."""
        with self._changed:
            self._closed = True
            self._changed.notify()
