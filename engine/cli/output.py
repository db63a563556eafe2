"""Tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.visible import visible

MIB = 2**20

NONE = "\u2013"
"""What stands in a cell of a table where there is nothing; an en dash."""


def give_up_output() -> None:
    """Let standard output lead nowhere: what it still holds would be refused again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(plain(value), allow_nan=False))


def plain(value: Any) -> Any:
    """`value` made of dicts, lists, texts and numbers; a number JSON has no word for is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; columns are as wide as their widest cell, those of numbers right-aligned.

    Cells may hold names from a file.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [
        max(len(head), *(len(row[i]) for row in rows)) if rows else len(head)
        for i, head in enumerate(heads)
    ]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(heads))]
    for row in (heads, *rows):
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


def _is_number(text: str) -> bool:
    return text in ("", NONE) or text.replace(".", "").replace(",", "").isdecimal()


def counted(count: int, thing: str) -> str:
    """A number and what is counted: "1 split", "1,051 tokens"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def mib(n_bytes: int) -> str:
    """Bytes in MiB with two digits."""
    return f"{n_bytes / MIB:,.2f}"


def ms(ns: float) -> str:
    """A time in ms with two digits."""
    return f"{ns / 1e6:,.2f}"


def kib(n_bytes: int) -> str:
    """Bytes in KiB with one digit; a dash for none."""
    return f"{n_bytes / 1024:,.1f}" if n_bytes else NONE
