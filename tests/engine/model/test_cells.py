"""Cells are taken in order, and those of a sliding part again once their tokens are out of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.cells import CacheCells
from engine.model.hparams import Window, WindowKind
from engine.model.kv_cache import CachePart


def cells_of(n_cells, window=None):
    return CacheCells(CachePart(0, n_cells, window))


def held(cells):
    """Return position -> cell."""
    return {int(p): i for i, p in enumerate(cells._positions) if p >= 0}


class LiteralCells:
    """find_slot and apply_ubatch of llama.cpp for one sequence, loop by loop."""

    def __init__(self, n_cells, window):
        self.pos = [-1] * n_cells
        self.window = window
        self.head = 0

    def take(self, first, n_tokens):
        slots = self.find_slot(n_tokens)
        highest_lost = -1
        for i, cell in enumerate(slots):
            highest_lost = max(highest_lost, self.pos[cell])
            self.pos[cell] = first + i
        left = [p for p in self.pos if p >= 0]
        if highest_lost >= 0 and min(left) <= highest_lost:
            self.pos = [-1 if 0 <= p <= highest_lost else p for p in self.pos]
        self.head = slots[-1] + 1
        return slots

    def find_slot(self, n_tokens):
        used = sum(p >= 0 for p in self.pos)
        head = 0 if self.head > used + 2 * n_tokens else self.head
        slots, n_tested = [], 0
        while len(slots) < n_tokens:
            if head + 1 > len(self.pos):
                n_tested += len(self.pos) - head
                head = 0
                continue
            if self.pos[head] < 0 or self.is_masked(self.pos[head], max(self.pos) + 1):
                slots.append(head)
            head += 1
            n_tested += 1
            assert len(slots) == n_tokens or n_tested < len(self.pos), "no slot"
        return slots

    def is_masked(self, p0, p1):
        return self.window is not None and p1 - p0 >= self.window.n_swa

    def end(self):
        return max((i + 1 for i, p in enumerate(self.pos) if p >= 0), default=0)


def test_a_full_part_is_filled_from_the_front():
    cells = cells_of(512)

    taken = [list(cells.take(first, n)) for first, n in ((0, 3), (3, 1), (4, 2))]

    assert taken == [[0, 1, 2], [3], [4, 5]]


def test_a_graph_looks_at_blocks_of_256_cells():
    cells = cells_of(1024)

    seen = []
    for first, n in ((0, 255), (255, 1), (256, 1)):
        cells.take(first, n)
        seen.append(cells.n_kv)

    assert seen == [256, 256, 512]


def test_cells_are_taken_again_when_their_tokens_have_left_the_window():
    cells = cells_of(8, Window(4))
    cells.take(0, 8)

    assert list(cells.take(8, 3)) == [0, 1, 2]
    assert held(cells) == {3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 0, 9: 1, 10: 2}


def test_a_chunk_frees_all_its_cells_at_once():
    cells = cells_of(8, Window(4, WindowKind.CHUNKED))
    cells.take(0, 8)

    assert list(cells.take(8, 4)) == [0, 1, 2, 3]


def test_a_full_part_without_a_window_has_no_more_cells():
    cells = cells_of(256)
    cells.take(0, 256)

    with pytest.raises(AssertionError, match="the context is full"):
        cells.take(256, 1)


def test_tokens_that_come_again_drop_what_was_at_their_positions():
    """A batch that was stopped took its cells; the next one starts at the same position."""
    cells = cells_of(256)
    cells.take(0, 3)
    cells.take(3, 5)

    assert list(cells.take(3, 2)) == [3, 4]
    assert held(cells) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}


def test_a_stopped_batch_leaves_a_sliding_part_whole():
    cells = cells_of(256, Window(100))
    cells.take(0, 256)
    cells.take(256, 50)

    cells.take(256, 50)

    assert set(range(156, 306)) <= held(cells).keys()


def test_a_cleared_part_starts_from_the_front():
    cells = cells_of(256, Window(10))
    for first in range(0, 600, 50):
        cells.take(first, 50)

    cells.clear()

    assert list(cells.take(0, 2)) == [0, 1]
    assert cells.n_kv == 256
    assert held(cells) == {0: 0, 1: 1}


def test_a_token_sees_itself_and_what_came_before():
    cells = cells_of(256)
    cells.take(0, 2)
    cells.take(2, 2)

    hidden = cells.hidden(2, 2, 5)

    assert hidden.tolist() == [[False] * 3 + [True] * 2, [False] * 4 + [True]]


def test_a_token_sees_no_further_than_its_window():
    cells = cells_of(256, Window(2))
    cells.take(0, 4)

    hidden = cells.hidden(0, 4, 4)

    seen = [np.flatnonzero(~row).tolist() for row in hidden]
    assert seen == [[0], [0, 1], [1, 2], [2, 3]]


@given(
    data=st.data(),
    n_blocks=st.integers(1, 2),
    n_swa=st.sampled_from([None, 1, 3, 100, 200]),
)
def test_cells_are_those_that_llama_cpp_takes(data, n_blocks, n_swa):
    n_cells = 256 * n_blocks
    window = None if n_swa is None else Window(n_swa)
    n_most = n_cells if n_swa is None else n_cells - n_swa
    ours, theirs, first = cells_of(n_cells, window), LiteralCells(n_cells, window), 0
    for n_tokens in data.draw(st.lists(st.integers(1, n_most), max_size=12)):
        if n_swa is None and first + n_tokens > n_cells:
            break
        assert list(ours.take(first, n_tokens)) == theirs.take(first, n_tokens)
        assert ours._positions.tolist() == theirs.pos
        assert ours.n_kv == ours.part.n_kv(theirs.end())
        first += n_tokens


@given(st.lists(st.integers(1, 150), min_size=1, max_size=20), st.integers(1, 100))
def test_every_token_finds_its_whole_window(sizes, n_swa):
    cells, first = cells_of(256, Window(n_swa)), 0
    for n_tokens in sizes:
        cells.take(first, n_tokens)
        hidden = cells.hidden(first, n_tokens, cells.n_kv)
        for i in range(n_tokens):
            seen = sorted(cells._positions[: cells.n_kv][~hidden[i]].tolist())
            assert seen == list(range(max(0, first + i - n_swa + 1), first + i + 1))
        first += n_tokens
