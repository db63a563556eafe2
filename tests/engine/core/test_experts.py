"""Which copies move used experts only, in which pieces, and what all would have cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import build
from engine.core.experts import ExpertUse, is_expert_copy, pieces, runs, runs_text
from tests.engine.sched import drawn
from tests.engine.sched.drawn import CPU_BUFT, GPU0_BUFT, N, cache, weight

EXPERT = 4 * N * N
PAD = 512


def picked(experts):
    return build.mul_mat_id(experts, drawn.given("x", N, 1), drawn.given("ids", 2, 1))


@pytest.mark.parametrize(
    ("numbers", "expected", "text"),
    [
        ([], [], ""),
        ([3], [(3, 3)], "3"),
        ([0, 1, 2], [(0, 2)], "0-2"),
        ([1, 2, 5, 7], [(1, 2), (5, 5), (7, 7)], "1-2, 5, 7"),
    ],
)
def test_runs_of_consecutive_numbers_and_their_words(numbers, expected, text):
    assert runs(numbers) == expected
    assert runs_text(expected) == text


def test_a_piece_is_padded_except_after_the_last_expert():
    found = pieces(weight("experts", CPU_BUFT, N, N, 8), [1, 2, 5, 7])

    assert [piece.experts for piece in found] == [(1, 2), (5, 5), (7, 7)]
    assert [(piece.start, piece.stop) for piece in found] == [
        (EXPERT, 3 * EXPERT + PAD), (5 * EXPERT, 6 * EXPERT + PAD), (7 * EXPERT, 8 * EXPERT)
    ]  # fmt: skip


@given(st.sets(st.integers(0, 15), min_size=1))
def test_pieces_never_overlap_nor_leave_the_weight_and_hold_every_used_expert(used):
    experts = weight("experts", CPU_BUFT, 4, 4, 16)

    found = pieces(experts, sorted(used))

    ends = [0, *(end for piece in found for end in (piece.start, piece.stop)), experts.n_bytes]
    assert ends == sorted(ends)
    held = {n for piece in found for n in range(piece.experts[0], piece.experts[1] + 1)}
    assert held == used


def test_a_host_weight_that_the_splits_first_node_picks_experts_of_is_an_expert_copy():
    experts = weight("experts", CPU_BUFT, N, N, 8)

    assert is_expert_copy(experts, picked(experts))


@pytest.mark.parametrize(
    ("copied", "first"),
    [
        (weight("w", CPU_BUFT), picked(weight("experts", CPU_BUFT, N, N, 8))),
        (device := weight("experts", GPU0_BUFT, N, N, 8), picked(device)),
        (no_weight := cache("experts", CPU_BUFT, N, N, 8), picked(no_weight)),
        (plain := weight("w", CPU_BUFT), build.mul_mat(plain, drawn.given("x"))),
        (homeless := drawn.given("x", N, N, 8), picked(homeless)),
    ],
    ids=["another weight", "not on the host", "no weight", "another operation", "no buffer"],
)
def test_anything_else_is_copied_whole(copied, first):
    assert not is_expert_copy(copied, first)


def test_what_all_would_have_taken_is_estimated_from_the_rate_of_the_pieces():
    use = ExpertUse(
        n_steps=1, n_copies=1, n_used=2, n_experts=8,
        copied_bytes=1_000, whole_bytes=4_000, copy_ns=500,
    )  # fmt: skip

    assert (use.bytes_per_ns, use.whole_ns) == (2.0, 2_000.0)
    assert (use + use).whole_ns == 4_000.0
    assert (use + use).n_steps == 2


def test_without_a_time_nothing_is_estimated():
    use = ExpertUse(1, 1, 2, 8, 1_000, 4_000, copy_ns=0)

    assert (use.bytes_per_ns, use.whole_ns) == (0.0, 0.0)
