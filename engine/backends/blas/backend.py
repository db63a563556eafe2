"""BLAS as a command stream: one product after the other, each on all threads."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Backend, Completion, DoneEvent, NodeTimes
from engine.backends.blas.library import BlasThreads
from engine.backends.blas.program import Program, build_program
from engine.backends.blas.workers import Workers
from engine.errors import Stopped

if TYPE_CHECKING:
    from engine.backend.interface import Device, Event, SplitGraph


class BlasBackend(Backend):
    """Computes on `n_threads` threads of this process; graph_compute returns when it is done."""

    def __init__(self, device: Device, n_threads: int) -> None:
        self.name = device.facts.name
        self.device = device
        self._library = BlasThreads()
        self._workers = Workers(n_threads)
        self._stop_word = 0

    @property
    def n_threads(self) -> int:
        """Threads that compute, the caller's included."""
        return self._workers.n_threads

    def set_n_threads(self, n_threads: int) -> None:
        """Compute on so many threads from the next split on."""
        assert n_threads >= 1, n_threads
        if n_threads == self.n_threads:
            return
        self._workers.dispose()
        self._workers = Workers(n_threads)

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Compute the nodes; the event carries the time of each."""
        program = self._program_of(graph)
        start_ns = time.monotonic_ns()
        if not program.products:
            return DoneEvent(Completion(start_ns, start_ns))
        starts, ends = np.zeros((2, len(program.products)), np.int64)
        with self._library.limited(1):
            for i_product, product in enumerate(program.products):
                starts[i_product] = time.monotonic_ns()
                product.compute(self._workers, self._check_stop)
                ends[i_product] = time.monotonic_ns()
        end_ns = time.monotonic_ns()
        nodes = NodeTimes(program.nodes, lambda: (starts, ends, 0))
        return DoneEvent(Completion(start_ns, end_ns, nodes))

    def set_stop_word(self, address: int) -> None:
        """Address of an int64 that is looked at between products, and inside large ones."""
        self._stop_word = address

    def dispose(self) -> None:
        """End the threads."""
        self._workers.dispose()

    def _program_of(self, graph: SplitGraph) -> Program:
        program = graph.program
        if not isinstance(program, Program):
            program = graph.program = build_program(graph)
        return program

    def _check_stop(self) -> None:
        if self._stop_word and ctypes.c_int64.from_address(self._stop_word).value:
            raise Stopped
