"""Giving back all of something, whatever a device says of some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def release_all(calls: Iterable[Callable[[], object]]) -> None:
    """Call all of them, in order: a device that refuses keeps no other from being asked.

    Raises: the first error; those after it mostly come of it.
    """
    errors = [error for call in calls if (error := _error_of(call)) is not None]
    if errors:
        raise errors[0]


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001  # Whatever it is: it is raised in the end.
        return error
    return None
