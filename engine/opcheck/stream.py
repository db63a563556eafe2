"""One device of this process, checked through the public contract alone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from engine.core.op_matrix import OpSpeed, OpState, OpVerdict
from engine.errors import Stopped, UserError
from engine.opcheck.judge import EXACT, compare, farthest
from engine.opcheck.prepared import Layout, Prepared, nodes_in_a_run, speed_of, started

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from engine.backend.interface import Backend, Device
    from engine.opcheck.prepared import Exercise


class Subject(Protocol):
    """A device that is checked, in this process or in another."""

    name: str

    def verdict(self, exercise: Exercise, *, with_speed: bool) -> OpVerdict:
        """What becomes of a case; never raises but Stopped."""
        ...

    def close(self) -> None:
        """Release what was needed."""
        ...


class OwnStream:
    """A device of this process. Its backend is made when it is first needed.

    `n_threads` is for backends that have threads.
    """

    def __init__(self, device: Device, n_threads: int) -> None:
        self.name = device.facts.name
        self._device = device
        self._n_threads = n_threads
        self._backend: Backend | None = None

    def verdict(self, exercise: Exercise, *, with_speed: bool) -> OpVerdict:
        """What becomes of a case."""
        found = self._guarded(exercise, self._refusal)
        if found is not None:
            return found
        # A fault of ours must not be taken for the device's.
        exercise.work_out()
        found = self._guarded(exercise, functools.partial(self._computed, with_speed=with_speed))
        assert found is not None
        return found

    def close(self) -> None:
        """End the stream; a new one is made when it is needed again."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        try:
            backend.dispose()
        except Exception:  # noqa: BLE001 - it was reported why it is of no use any more
            return

    def _guarded(
        self, exercise: Exercise, ask: Callable[[Exercise], OpVerdict | None]
    ) -> OpVerdict | None:
        """What the device says; its fault is a verdict too, never the end."""
        try:
            return ask(exercise)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            self.close()
            return failed(exercise.bar, error)

    def _refusal(self, exercise: Exercise) -> OpVerdict | None:
        """The verdict on a case that is not for this device; None for one that is."""
        facts, memory = self._device.facts, self._device.buffer_type().facts
        layout = Layout(memory, exercise.case)
        if not facts.rules.supports_op(layout.tensors.node):
            return OpVerdict(OpState.NOT_SUPPORTED, exercise.bar)
        if not facts.rules.supports_buft(memory):
            reason = f"its rules refuse its own memory, {memory.name}"
            return OpVerdict(OpState.FAILED, exercise.bar, reason=reason)
        if memory.max_bytes is not None and layout.size > memory.max_bytes:
            reason = "it needs more memory at once than the device gives"
            return OpVerdict(OpState.NOT_SUPPORTED, exercise.bar, reason=reason)
        return None

    def _computed(self, exercise: Exercise, *, with_speed: bool) -> OpVerdict:
        memory = self._device.buffer_type()
        if self._backend is None:
            self._backend = started(self._device, self._n_threads)
        prepared = Prepared(memory, self._backend, exercise)
        try:
            prepared.run()
            result, fault = prepared.found()
        finally:
            prepared.release()
        speed = self._speed(self._backend, exercise) if with_speed else None
        if fault:
            return OpVerdict(OpState.WRONG, exercise.bar, reason=fault, speed=speed)
        return judged(exercise, result, speed)

    def _speed(self, backend: Backend, exercise: Exercise) -> OpSpeed:
        memory = self._device.buffer_type()
        n_nodes = nodes_in_a_run(memory, backend, exercise)
        prepared = Prepared(memory, backend, exercise, n_nodes)
        try:
            return speed_of(prepared)
        finally:
            prepared.release()


def failed(bar: float, error: BaseException) -> OpVerdict:
    """The verdict on a device that raised."""
    if isinstance(error, UserError):
        reason, details = f"{error.title} {error.sentence}".strip(), error.details
    else:
        reason, details = f"it raised {error!r}", ""
    return OpVerdict(OpState.FAILED, bar, reason=reason, details=details)


def judged(exercise: Exercise, result: npt.NDArray[np.generic], speed: OpSpeed | None) -> OpVerdict:
    """The verdict on a result."""
    part, expected = exercise.expected.part_of(result), exercise.expected.values
    error, fault = compare(part, expected)
    bar = exercise.bar
    if not fault and error is not None and error <= bar:
        return OpVerdict(OpState.OK, bar, error, speed=speed)
    if fault:
        return OpVerdict(OpState.WRONG, bar, error, fault, speed)
    allowed = "the values have to be the same" if bar == EXACT else f"allowed is {bar:.2g}"
    reason = f"error {error:.2g}, {allowed}; {farthest(part, expected)}"
    return OpVerdict(OpState.WRONG, bar, error, reason, speed)
