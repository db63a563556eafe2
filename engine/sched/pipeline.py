"""Pipeline slots: which copy of every input the next graph uses, and the events that guard it.

Source: SCHED.md 10 and 15. With one slot there are no events; backends are synchronised instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import Backend, Event


class Pipeline:
    """The slots of one scheduler; one thread uses it.

    `copy_slot` is the slot of the last graph that was allocated, `next_slot` that of the next.
    """

    def __init__(self, backends: Sequence[Backend], n_copies: int) -> None:
        self.n_copies = n_copies
        self.copy_slot = 0
        self.next_slot = 0
        n_events = n_copies if n_copies > 1 else 0
        self._events: tuple[tuple[Event | None, ...], ...] = tuple(
            tuple(backend.device.event_new() for _ in range(n_events)) for backend in backends
        )

    def advance(self) -> None:
        """Give the next graph the next slot."""
        self.copy_slot = self.next_slot
        self.next_slot = (self.next_slot + 1) % self.n_copies

    def rewind(self) -> None:
        """Let the next graph use slot 0, so that generation uses the same one each time."""
        self.next_slot = 0

    def event(self, backend_id: int, copy_slot: int) -> Event | None:
        """The event of a backend and a slot; None without pipelining or without event support."""
        events = self._events[backend_id]
        return events[copy_slot] if events else None
