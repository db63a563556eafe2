"""The CPU's command stream: a split is one walk over its op table on all threads."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Backend, Completion, DoneEvent, NodeTimes
from engine.backends.cpu import interpreter, layout
from engine.backends.cpu.bus_error import tell_of_bus_errors
from engine.backends.cpu.jit import compile_entry, kept_folder
from engine.backends.cpu.kernels.catalog import warm_up
from engine.backends.cpu.old_code import tidy
from engine.backends.cpu.table import Program, build_program
from engine.backends.cpu.threads import ThreadPool
from engine.backends.cpu.ticks import host_times
from engine.backends.cpu.warmup import needed_kernels
from engine.errors import DeviceError, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    from engine.backend.interface import Device, Event, SplitGraph
    from engine.backends.cpu.jit import Kernel
    from engine.core.tensor import Tensor

_ENTRIES = (
    (interpreter.begin, 5),
    (interpreter.lead, 2),
    (interpreter.work, 4),
    (interpreter.announce, 2),
)
"""What Python calls, with the number of its arguments."""


class CpuBackend(Backend):
    """Computes on `n_threads` threads of this process; graph_compute returns when it is done."""

    def __init__(self, device: Device, n_threads: int) -> None:
        self.name = "CPU"
        self.device = device
        self._stop_word = 0
        self._pool = ThreadPool(n_threads)

    @property
    def n_threads(self) -> int:
        """Threads that compute, the caller's included."""
        return self._pool.n_threads

    def set_n_threads(self, n_threads: int) -> None:
        """Compute on so many threads from the next split on."""
        assert n_threads >= 1, n_threads
        if n_threads == self._pool.n_threads:
            return
        self._pool.dispose()
        self._pool = ThreadPool(n_threads)
        self._pool.set_stop_word(self._stop_word)

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Compute the nodes; the event carries the time of each."""
        program = self._program_of(graph)
        start_ns = time.monotonic_ns()
        if not program.n_rows:
            return DoneEvent(Completion(start_ns, start_ns))
        self._run(graph, program)
        end_ns = time.monotonic_ns()
        return DoneEvent(Completion(start_ns, end_ns, _node_times(program)))

    def set_stop_word(self, address: int) -> None:
        """Address of an int64 that is looked at between operations."""
        self._stop_word = address
        self._pool.set_stop_word(address)

    def prepare(self, on_progress: Callable[[int, int, str], None] | None = None) -> None:
        """Compile or load the kernels that most models need, and the interpreter."""
        _compile(warm_up(), on_progress)

    def prepare_for(
        self,
        nodes: Iterable[Tensor],
        on_progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """The same for the kernels of those of `nodes` that the CPU could compute."""
        _compile(needed_kernels(nodes, self.device.facts.rules.supports_op), on_progress)

    def dispose(self) -> None:
        """End the threads."""
        self._pool.dispose()

    def _program_of(self, graph: SplitGraph) -> Program:
        program = graph.program
        if not isinstance(program, Program) or program.n_threads != self.n_threads:
            program = build_program(graph, self.n_threads)
            graph.program = program
        return program

    def _run(self, graph: SplitGraph, program: Program) -> None:
        outcome = self._pool.run(program.table_address, program.n_rows, program.ticks_address)
        if outcome == interpreter.BAD_STATUS:
            raise self._failure(graph, program)
        if outcome == interpreter.STOPPED:
            raise Stopped

    def _failure(self, graph: SplitGraph, program: Program) -> DeviceError:
        status, i_row = self._pool.failure()
        assert status == layout.STATUS_BAD_INDEX, status
        node = graph.nodes[program.row_nodes[i_row]]
        return DeviceError(
            f"The CPU cannot compute {node.name}.",
            f"{node.op_desc} was asked for a row that {node.src[0].name or 'its table'} "
            "does not have.",
            "The model file and its tokens do not belong together; check where both come from.",
        )


def _compile(
    kernels: Mapping[str, Kernel], on_progress: Callable[[int, int, str], None] | None
) -> None:
    steps: list[tuple[str, Callable[[], object]]] = [
        (name, kernel.address) for name, kernel in kernels.items()
    ]
    steps.append(("interpreter", _compile_interpreter))
    for i_step, (name, compile_step) in enumerate(steps):
        if on_progress is not None:
            on_progress(i_step, len(steps), name)
        compile_step()
    tell_of_bus_errors()
    tidy(kept_folder())
    if on_progress is not None:
        on_progress(len(steps), len(steps), "")


def _compile_interpreter() -> None:
    for function, n_params in _ENTRIES:
        compile_entry(function, n_params)


def _node_times(program: Program) -> NodeTimes:
    """Times that are worked out when asked for; the next split writes over the ticks."""
    return NodeTimes(program.computed, partial(_read_times, program, program.ticks.tobytes()))


def _read_times(
    program: Program, ticks: bytes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    times = host_times(np.frombuffer(ticks, np.int64))
    return times.ns[program.first_row], times.ns[program.end_row], times.error_ns
