"""The threads of one CPU backend: thread 0 is the caller, the others wait in native code."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.host_buffer import aligned_bytes
from engine.backends.cpu import interpreter
from engine.backends.cpu.ticks import has_steady_counter
from engine.errors import DeviceError

if TYPE_CHECKING:
    import numpy.typing as npt


class ThreadPool:
    """`n_threads` threads that walk op tables together. Used from one thread.

    Workers start with the first split, spin briefly between splits and then sleep.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        size = interpreter.PARKED + interpreter.LINE * n_threads
        self._memory = aligned_bytes(size, interpreter.LINE)
        self._words: npt.NDArray[np.int64] = self._memory.view(np.int64)
        self._control = int(self._memory.ctypes.data)
        self._wake = [threading.Lock() for _ in range(n_threads)]
        self._threads: list[threading.Thread] = []
        system = _system_functions()
        self._set(interpreter.CLOCK, system.clock)
        self._set(interpreter.CLOCK_ID, system.clock_id)
        self._set(interpreter.YIELD, system.give_way)
        self._set(interpreter.COUNTS, int(has_steady_counter()))

    def set_stop_word(self, address: int) -> None:
        """Address of an int64 that is looked at between rows; 0 for none."""
        self._set(interpreter.STOP_WORD, address)

    def run(self, table: int, n_rows: int, ticks: int) -> int:
        """Walk a table; give back DONE, STOPPED, or BAD_STATUS (see `failure`).

        A stop that comes during the last row changes nothing: the split is computed.
        """
        self._start_workers()
        outcome = interpreter.begin(self._control, self.n_threads, table, n_rows, ticks)
        if outcome != interpreter.ASLEEP:
            return outcome
        self._wake_up()
        return interpreter.lead(self._control, self.n_threads)

    def failure(self) -> tuple[int, int]:
        """Status of the kernel that was not OK, and its row."""
        return self._get(interpreter.STATUS), self._get(interpreter.STATUS_ROW)

    def dispose(self) -> None:
        """End the workers and wait for them."""
        if not self._threads:
            return
        self._set(interpreter.QUIT, 1)
        interpreter.announce(self._control, self.n_threads)
        self._wake_up()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_workers(self) -> None:
        if self._threads or self.n_threads == 1:
            return
        for ith in range(1, self.n_threads):
            self._wake[ith].acquire()
            thread = threading.Thread(
                target=self._live, args=(ith,), name=f"cpu-{ith}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _live(self, ith: int) -> None:
        last_job = 0
        while True:
            last_job = int(interpreter.work(self._control, ith, self.n_threads, last_job))
            if self._get(interpreter.QUIT):
                return
            self._wake[ith].acquire()

    def _wake_up(self) -> None:
        """Wake whom the last `announce` found asleep."""
        for ith in range(1, self.n_threads):
            if self._get(interpreter.PARKED + interpreter.LINE * ith + interpreter.WAKE):
                self._wake[ith].release()

    def _get(self, offset: int) -> int:
        return int(self._words[offset // 8])

    def _set(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value


class _SystemFunctions:
    """Addresses of the system's functions that the interpreter calls."""

    def __init__(self, clock: int, clock_id: int, give_way: int) -> None:
        self.clock, self.clock_id, self.give_way = clock, clock_id, give_way


def _system_functions() -> _SystemFunctions:
    """The monotonic clock that `time.monotonic_ns` reads, and sched_yield."""
    if sys.platform == "win32":
        raise DeviceError(
            "The CPU backend cannot run on Windows yet.",
            "It reads the clock through clock_gettime, which Windows does not have.",
            "Plan the model here and run it on Linux or macOS.",
        )
    library = ctypes.CDLL(None)

    def address(name: str) -> int:
        value = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert value is not None, name
        return value

    # On macOS Python's monotonic clock is mach_absolute_time, which is CLOCK_UPTIME_RAW there.
    clock_id = 8 if sys.platform == "darwin" else time.CLOCK_MONOTONIC
    return _SystemFunctions(address("clock_gettime"), clock_id, address("sched_yield"))
