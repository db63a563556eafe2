"""The report as Markdown, for people, and as JSON, for programs. Pure but for `write`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from tests.bench.race import invalid_because

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.bench.results import Cell, Column, Part, Table

NAME = "report"
TITLE = "Splitscope: benchmark"
NOTHING = "-"


def write(folder: Path, facts: Mapping[str, str], parts: Sequence[Part]) -> tuple[Path, Path]:
    """Write both forms into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    markdown, data = folder / f"{NAME}.md", folder / f"{NAME}.json"
    markdown.write_text(as_markdown(facts, parts), encoding="utf-8")
    data.write_text(json.dumps(as_data(facts, parts), indent=1) + "\n", encoding="utf-8")
    return markdown, data


def as_markdown(facts: Mapping[str, str], parts: Sequence[Part]) -> str:
    """Facts of the machine, whether the run counts, and every table."""
    blocks = [f"# {TITLE}", "\n".join(f"- {name}: {text}" for name, text in facts.items())]
    blocks.append(verdict(parts))
    blocks += [table_text(part.table) for part in parts]
    return "\n\n".join(blocks) + "\n"


def verdict(parts: Sequence[Part]) -> str:
    """Whether the machine was quiet enough, and if not, what moved."""
    reasons = [reason for part in parts for reason in invalid_because(part.variations)]
    if not reasons:
        return "This run is valid."
    return "This run is invalid, not failed: the ceilings moved.\n\n" + "\n".join(
        f"- {reason}" for reason in reasons
    )


def is_valid(parts: Sequence[Part]) -> bool:
    """Whether no ceiling moved too much."""
    return not any(invalid_because(part.variations) for part in parts)


def table_text(table: Table) -> str:
    """One table under its title, its notes behind it."""
    lines = [f"## {table.title}"]
    if table.rows:
        head = [column.title for column in table.columns]
        body = [
            [cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True)]
            for row in table.rows
        ]
        ruled = [head, ["---"] * len(head), *body]
        lines += ["", *(f"| {' | '.join(cells)} |" for cells in ruled)]
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines)


def cell_text(cell: Cell, column: Column) -> str:
    """A cell for people."""
    if cell is None:
        return NOTHING
    if isinstance(cell, float):
        return f"{cell:.{column.digits}f}"
    return str(cell).replace("|", "\\|")


def as_data(facts: Mapping[str, str], parts: Sequence[Part]) -> dict[str, Any]:
    """The same, and every single measurement."""
    return {
        "facts": dict(facts),
        "valid": is_valid(parts),
        "parts": [dataclasses.asdict(part) for part in parts],
    }
