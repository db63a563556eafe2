"""CacheCells: which position is in which cell of a part of the cache.

Cells of a sliding part are taken again once their tokens have left the window.
Source: llama-kv-cache find_slot and apply_ubatch, for one sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.model.kv_cache import CachePart

Integers = npt.NDArray[np.int64]
Cells = range | Integers
"""Cells by number; a range where they follow one another."""

EMPTY = -1


class CacheCells:
    """The cells of one part. One thread uses it: the engine's."""

    def __init__(self, part: CachePart) -> None:
        self.part = part
        self._positions: Integers = np.full(part.n_cells, EMPTY, np.int64)
        # The same memory: one number of it is read in a tenth of the time.
        self._numbers = self._positions.data
        self.n_changes = 0
        """Times that something changed; grows only."""
        self.appended: int | None = None
        """The cell of the last change, if all it did was to give a token the next free cell, which
        every later token sees as this one does."""
        self._head = 0
        self._n_taken = 0
        self._end = 0
        self._next = 0

    @property
    def n_kv(self) -> int:
        """Cells that a graph looks at."""
        return self.part.n_kv(self._end)

    def clear(self) -> None:
        """Empty every cell."""
        self._changed(None)
        self._positions.fill(EMPTY)
        self._head = self._n_taken = self._end = self._next = 0

    def take(self, first: int, n_tokens: int) -> Cells:
        """Cells for the tokens at positions `first` and on; what was at those before is dropped.

        Positions up to the highest one whose cell is taken again are dropped too, so that those
        that are left have no gap.
        """
        if n_tokens == 1 and self._can_append(first):
            return self._append(first)
        self._changed(None)
        self._drop_from(first)
        self._reconsider_head(n_tokens)
        if self._is_free_ahead(n_tokens):
            cells: Cells = range(self._head, self._head + n_tokens)
            self._positions[self._head : self._head + n_tokens] = np.arange(first, first + n_tokens)
            self._take_new(n_tokens, self._head + n_tokens)
        else:
            cells = self._take_any(first, n_tokens)
        self._head, self._next = int(cells[-1]) + 1, first + n_tokens
        return cells

    def _can_append(self, first: int) -> bool:
        """Whether one token only has to take the cell at the head."""
        is_near = self._head <= self._n_taken + 2 and self._head < len(self._numbers)
        return first >= self._next and is_near and self._numbers[self._head] == EMPTY

    def _append(self, first: int) -> Cells:
        cell = self._head
        self._changed(cell if self.part.window is None else None)
        self._numbers[cell] = first
        self._take_new(1, cell + 1)
        self._head, self._next = cell + 1, first + 1
        return range(cell, cell + 1)

    def _changed(self, appended: int | None) -> None:
        self.n_changes += 1
        self.appended = appended

    def _take_any(self, first: int, n_tokens: int) -> Integers:
        """Cells here and there, some of them perhaps of tokens that left the window."""
        cells = self._free_cells(first, n_tokens)
        highest_lost = int(self._positions[cells].max())
        self._positions[cells] = np.arange(first, first + n_tokens)
        if highest_lost != EMPTY:
            kept = self._positions > highest_lost
            self._positions[~kept] = EMPTY
            self._count()
        else:
            self._take_new(n_tokens, int(cells.max()) + 1)
        return cells

    def _take_new(self, n_tokens: int, end: int) -> None:
        """Count cells that were empty."""
        self._n_taken += n_tokens
        self._end = max(self._end, end)

    def hidden(self, first: int, n_tokens: int, n_kv: int) -> npt.NDArray[np.bool_]:
        """[n_tokens, n_kv]: whether the token at each position from `first` on sees a cell not."""
        # As unsigned numbers an empty cell lies behind every position.
        there = self._positions[:n_kv].view(np.uint64)
        asking = np.arange(first, first + n_tokens, dtype=np.uint64)[:, None]
        hidden: npt.NDArray[np.bool_] = there > asking
        if self.part.window is not None:
            hidden |= self.part.window.hides(there.view(np.int64), asking.view(np.int64))
        return hidden

    def _reconsider_head(self, n_tokens: int) -> None:
        """With many free cells before the head, fill those first."""
        if self._head > self._n_taken + 2 * n_tokens:
            self._head = 0

    def _is_free_ahead(self, n_tokens: int) -> bool:
        """Whether the next cells are all empty."""
        ahead = self._positions[self._head : self._head + n_tokens]
        return ahead.size == n_tokens and bool((ahead == EMPTY).all())

    def _free_cells(self, first: int, n_tokens: int) -> Integers:
        """The first free cells from the head on, around the end of the cache."""
        free = self._positions == EMPTY
        if self.part.window is not None:
            free |= self.part.window.hides(self._positions, first)
        order = np.roll(np.arange(free.size), -self._head)
        found: Integers = order[free[order]][:n_tokens]
        assert found.size == n_tokens, "the context is full"
        return found

    def _drop_from(self, first: int) -> None:
        """Empty the cells of positions that are not before `first`."""
        if first >= self._next:
            return
        dropped = np.flatnonzero(self._positions >= first)
        if dropped.size:
            self._positions[dropped] = EMPTY
            self._head = min(self._head, int(dropped[0]))
            self._count()

    def _count(self) -> None:
        taken = np.flatnonzero(self._positions != EMPTY)
        self._n_taken = taken.size
        self._end = int(taken[-1]) + 1 if taken.size else 0
