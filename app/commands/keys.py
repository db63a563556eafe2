"""The key sheet: every command of the menus, and the keys of the panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QKeySequence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.commands.spec import ActionSpec


def key_sheet(
    specs: Iterable[ActionSpec],
    menus: Iterable[tuple[str, tuple[str, ...]]],
    pane_keys: Iterable[tuple[str, tuple[tuple[str, str], ...]]] = (),
) -> str:
    """The sheet as Markdown: a table a menu, the commands that stand in none, a table a pane."""
    by_id = {spec.id: spec for spec in specs}
    left = dict(by_id)
    parts = ["# Keys"]
    for title, ids in menus:
        listed = [by_id[action_id] for action_id in ids if action_id in by_id]
        for spec in listed:
            left.pop(spec.id)
        parts.append(_table(title, listed))
    if left:
        parts.append(_table("More", left.values()))
    for title, rows in pane_keys:
        lines = [f"| {keys} | {words} |" for keys, words in rows]
        parts.append("\n".join([f"## {title}", "", "| Keys | |", "|---|---|", *lines]))
    return "\n\n".join(parts)


def _table(title: str, specs: Iterable[ActionSpec]) -> str:
    rows = [f"| {_keys(spec)} | {spec.text.rstrip('…')} | {spec.tip} |" for spec in specs]
    return "\n".join([f"## {title}", "", "| Keys | Command | |", "|---|---|---|", *rows])


def _keys(spec: ActionSpec) -> str:
    form = QKeySequence.SequenceFormat.NativeText
    return " or ".join(QKeySequence(key).toString(form) for key in spec.keys)
