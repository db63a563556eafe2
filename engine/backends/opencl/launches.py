"""The launches of a split as the driver takes them."""

from __future__ import annotations

from typing import NamedTuple

import pyopencl as cl


class Launch(NamedTuple):
    """A kernel and what it is launched with; `global_size` counts items, whole groups."""

    kernel: cl.Kernel
    args: tuple[cl.Buffer | float, ...]
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]


class CompiledSplit:
    """The launches of a split, in order.

    A split that is computed twice is likely to be computed often: its launches then get kernel
    objects of their own, whose arguments stay bound. To make one takes 0.1 ms; to set arguments
    before each launch takes 5 to 10 us on a driver whose threads keep every core busy.
    """

    def __init__(self, launches: tuple[Launch, ...], *, can_clone: bool) -> None:
        self._shared = launches
        self._can_clone = can_clone
        self._own: tuple[Launch, ...] | None = None
        self._is_new = True

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches, in order."""
        return self._shared

    @property
    def is_empty(self) -> bool:
        """Whether nothing computes."""
        return not self._shared

    def enqueue(self, queue: cl.CommandQueue) -> list[cl.Event]:
        """Queue the launches; their commands."""
        if self._is_new or not self._can_clone:
            self._is_new = False
            return [_set_and_launch(queue, launch) for launch in self._shared]
        if self._own is None:
            self._own = tuple(_with_own_kernel(launch) for launch in self._shared)
        return [
            cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
            for kernel, _, global_size, local_size in self._own
        ]


def _set_and_launch(queue: cl.CommandQueue, launch: Launch) -> cl.Event:
    launch.kernel.set_args(*launch.args)
    return cl.enqueue_nd_range_kernel(queue, launch.kernel, launch.global_size, launch.local_size)


def _with_own_kernel(launch: Launch) -> Launch:
    """The launch with a kernel object of its own; a clone has the arguments that were set."""
    launch.kernel.set_args(*launch.args)
    return launch._replace(kernel=launch.kernel.clone())
