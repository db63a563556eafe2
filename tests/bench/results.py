"""What a part of the benchmark hands to the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Cell = float | int | str | None
"""None: there is no such figure here."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `digits` after the point of its numbers."""

    title: str
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns, and what to know about them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a report.

    `figures` are named numbers that bars are held against, such as `decode_ratio demo 2`; `data`
    is every single measurement, for programs; `variations` is by how much each ceiling moved
    during each group of pairs.
    """

    table: Table
    figures: dict[str, float] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    variations: dict[str, float] = field(default_factory=dict)
