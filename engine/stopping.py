"""StopSwitch: a wish to stop concerns the jobs that were asked for before it, never later ones."""

from __future__ import annotations

import threading

import numpy as np

from engine.errors import Stopped


class StopSwitch:
    """One word that kernels read, and numbered jobs. Any thread may call any method.

    Jobs are numbered when they are asked for, so a wish that comes while a job still waits its
    turn is not lost, and one that comes too late does not stop the next job.
    """

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        self._lock = threading.Lock()
        self._n_admitted = 0
        self._n_stopped = 0

    @property
    def address(self) -> int:
        """Where the word is; non-zero there means stop."""
        return int(self._word.ctypes.data)

    def admit(self) -> int:
        """The number of a new job."""
        with self._lock:
            self._n_admitted += 1
            return self._n_admitted

    def ask(self) -> None:
        """Stop every job admitted so far."""
        with self._lock:
            self._n_stopped = self._n_admitted
            self._word[0] = 1

    def is_stopped(self, job: int) -> bool:
        """Whether a job is to stop."""
        return job <= self._n_stopped

    def is_asked(self) -> bool:
        """Whether the job that uses the word is to stop."""
        return bool(self._word[0])

    def begin(self, job: int) -> None:
        """Let a job use the word, one at a time; raises Stopped if it is to stop already."""
        with self._lock:
            if self.is_stopped(job):
                raise Stopped
            self._word[0] = 0
