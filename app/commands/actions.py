"""ActionSet: the QActions of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence

from app.commands.spec import SEPARATOR, WHY_NOT, ActionSpec, Need

if TYPE_CHECKING:
    from PySide6.QtWidgets import QMenu

    from app.theme.theme import Theme

Handler = Callable[[], object]


class ActionSet(QObject):
    """One QAction a command. `handlers` gives each command a bound method without arguments.

    Raises ValueError for a command without a handler, a handler without a command, and for two
    commands with the same id or key.
    """

    def __init__(
        self,
        specs: Iterable[ActionSpec],
        handlers: Mapping[str, Handler],
        theme: Theme,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        _check(tuple(specs), handlers)
        self._specs = {spec.id: spec for spec in specs}
        self._theme = theme
        self._handlers = dict(handlers)
        self._groups: dict[str, QActionGroup] = {}
        self._actions = {spec.id: self._make(spec) for spec in self.specs}
        self._facts: Need | None = None
        theme.changed.connect(self._tint)
        self._tint()
        self.set_facts(Need.NOTHING)

    @property
    def specs(self) -> tuple[ActionSpec, ...]:
        """The commands as they are now."""
        return tuple(self._specs.values())

    def __getitem__(self, action_id: str) -> QAction:
        return self._actions[action_id]

    def all(self) -> list[QAction]:
        """Every action, so that a window can hold their shortcuts."""
        return list(self._actions.values())

    def set_facts(self, facts: Need) -> None:
        """Enable what `facts` allow; the tooltip of the rest says why not."""
        if facts == self._facts:
            return
        self._facts = facts
        for spec in self.specs:
            self._show_facts(spec, facts)

    def use(self, spec: ActionSpec) -> None:
        """Give a command other words and needs; id, keys and handler stay."""
        self._specs[spec.id] = spec
        self._actions[spec.id].setText(spec.text)
        self._show_facts(spec, self._facts or Need.NOTHING)

    def _show_facts(self, spec: ActionSpec, facts: Need) -> None:
        missing = spec.needs & ~facts
        action = self._actions[spec.id]
        action.setEnabled(not missing)
        action.setToolTip(tooltip(spec, missing))

    def fill_menu(self, menu: QMenu, ids: Iterable[str]) -> None:
        """Append commands and lines to a menu."""
        for action_id in ids:
            if action_id == SEPARATOR:
                menu.addSeparator()
            else:
                menu.addAction(self._actions[action_id])

    def _make(self, spec: ActionSpec) -> QAction:
        action = QAction(spec.text, self)
        action.setObjectName(spec.id)
        action.setShortcuts([QKeySequence(key) for key in spec.keys])
        action.setCheckable(spec.checkable)
        action.setIconVisibleInMenu(False)
        if spec.group:
            group = self._groups.setdefault(spec.group, QActionGroup(self))
            group.addAction(action)
        action.triggered.connect(self._on_triggered)
        return action

    def _on_triggered(self) -> None:
        action = self.sender()
        assert isinstance(action, QAction)
        self._handlers[action.objectName()]()

    def _tint(self) -> None:
        for spec in self.specs:
            if spec.icon:
                self._actions[spec.id].setIcon(self._theme.icon(spec.icon))


def tooltip(spec: ActionSpec, missing: Need = Need.NOTHING) -> str:
    """What a command does, its key, and what keeps it from being used."""
    text = spec.tip
    if spec.keys:
        shown = QKeySequence(spec.keys[0]).toString(QKeySequence.SequenceFormat.NativeText)
        text = f"{text} ({shown})"
    reason = next((why for need, why in WHY_NOT.items() if need & missing), "")
    return f"{text}: {reason}" if reason else text


def _check(specs: tuple[ActionSpec, ...], handlers: Mapping[str, Handler]) -> None:
    ids = [spec.id for spec in specs]
    keys = [key for spec in specs for key in spec.keys]
    if len(set(ids)) != len(ids) or len(set(keys)) != len(keys):
        raise ValueError("two commands share an id or a key")
    if set(ids) != set(handlers):
        raise ValueError(f"commands and handlers differ: {sorted(set(ids) ^ set(handlers))}")
