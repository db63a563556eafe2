"""Counts of a run in progress."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.summary import RunState

if TYPE_CHECKING:
    from collections.abc import Callable

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands, for a screen."""

    state: RunState
    n_prompt_tokens: int = 0
    n_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0


@dataclass(slots=True)
class RunProgress:
    """Counts of a run in progress; `tell` hears of every change of state and every token."""

    tell: Callable[[RunStatus], None]
    clock: Callable[[], int] = time.monotonic_ns
    state: RunState = RunState.IDLE
    n_prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    prefill_tokens_per_s: float = 0.0
    _since_ns: int = 0
    _decode_ns: int = 0
    _n_decoded: int = 0

    def enter(self, state: RunState) -> None:
        """The run is doing something else now."""
        self.state = state
        self._since_ns = self.clock()
        self._tell()

    def prompt_done(self) -> None:
        """The prompt was read."""
        elapsed_ns = self.clock() - self._since_ns
        self.prefill_tokens_per_s = self.n_prompt_tokens * NS_PER_S / max(elapsed_ns, 1)
        self.enter(RunState.GENERATING)

    def add(self, token: int) -> None:
        """A token was chosen."""
        self.tokens.append(token)
        self._tell()

    def token_done(self) -> None:
        """A token was computed."""
        now_ns = self.clock()
        self._decode_ns += now_ns - self._since_ns
        self._n_decoded += 1
        self._since_ns = now_ns

    def _tell(self) -> None:
        speed = self._n_decoded * NS_PER_S / self._decode_ns if self._decode_ns else 0.0
        self.tell(
            RunStatus(
                self.state,
                self.n_prompt_tokens,
                len(self.tokens),
                self.prefill_tokens_per_s,
                speed,
            )
        )
