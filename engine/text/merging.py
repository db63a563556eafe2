"""The merge loop that both BPE kinds share."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def merge_parts(text: str, rank_of: Callable[[str, str], float | None]) -> list[str]:
    """The characters of `text` joined pair by pair until no neighbours have a rank.

    Lowest rank first, leftmost among equals; n log n in the length of `text`.
    """
    parts: list[str] = list(text)
    n = len(parts)
    after = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    heap: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        rank = rank_of(parts[left], parts[right])
        if rank is not None:
            heappush(heap, (rank, left, right, len(parts[left]) + len(parts[right])))

    for left in range(n - 1):
        offer(left, left + 1)
    while heap:
        _, left, right, length = heappop(heap)
        # An entry is stale when either side was joined to something else since.
        if not parts[left] or not parts[right] or len(parts[left]) + len(parts[right]) != length:
            continue
        parts[left] += parts[right]
        parts[right] = ""
        after[left] = after[right]
        if after[left] < n:
            before[after[left]] = left
            offer(left, after[left])
        if before[left] >= 0:
            offer(before[left], left)
    return [part for part in parts if part]
