"""OptionsView: every option in foldable sections; a row below copies and resets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.models.dock_title import DockTitle
from app.state.option_changes import changed_fields, not_default
from app.views.options.groups import GROUPS
from app.views.options.notes import note, panel_facts, why_off
from app.views.options.overrides import OverridesEditor
from app.views.options.row import OptionRow
from app.views.options.section import Section
from engine.core.options import DEFAULTS, Options
from engine.core.summary import RunState

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme

RUNNING = "A run is on: what moves weights or caches applies at the next run."


class OptionsView(QWidget):
    """Shows options; what a person changes is asked for, and shown when it is planned."""

    dock_title_changed = Signal(object)
    asked = Signal(object)
    """Carries the changes: values by option."""
    folded = Signal(object)
    """Carries the ids of the sections that are open now."""

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("options")
        self.setProperty("role", "sheet")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._state, self._theme, self._actions = state, theme, actions
        self._options = DEFAULTS
        self.sections: dict[str, Section] = {}
        self.rows: dict[str, OptionRow] = {}
        self.running = QLabel(RUNNING, self)
        self.running.setWordWrap(True)
        self.running.setMargin(8)
        self.area = QScrollArea(self)
        self._make_sections()
        self._make_layout()
        self.setFocusProxy(self.sections[GROUPS[0].id].head)
        state.run_changed.connect(self._on_facts)
        state.devices_changed.connect(self._on_facts)
        state.plans_changed.connect(self._on_facts)
        state.model_changed.connect(self._on_model)
        self._on_facts()

    def _make_sections(self) -> None:
        body = QWidget(self.area)
        body.setProperty("role", "sheet")
        body.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(body)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for group in GROUPS:
            section = Section(group, self._theme, body)
            section.set_open(is_open=group.is_open)
            section.folded.connect(self._on_folded)
            for field, label in group.rows:
                section.add_row(self._made_row(field, label, section))
            self.sections[group.id] = section
            column.addWidget(section)
        column.addStretch()
        self.area.setWidget(body)
        self.area.setWidgetResizable(True)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def _made_row(self, field: str, label: str, section: Section) -> OptionRow:
        row = OptionRow(field, label, self._theme, section)
        row.changed.connect(self._on_changed)
        row.edited.connect(self._on_edited)
        self.rows[field] = row
        return row

    def _make_layout(self) -> None:
        footer = QFrame(self)
        footer.setProperty("role", "footer")
        line = QHBoxLayout(footer)
        line.setContentsMargins(12, 6, 12, 6)
        line.setSpacing(8)
        self.help_button = self._button("manual_options", "Help")
        self.copy_button = self._button("copy_command", "Copy command")
        self.reset_button = self._button("reset_options", "Reset all")
        for button in (self.copy_button, self.reset_button):
            line.addWidget(button)
        line.addStretch()
        line.addWidget(self.help_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.running)
        column.addWidget(self.area, stretch=1)
        column.addWidget(footer)

    def _button(self, action_id: str, text: str) -> QPushButton:
        action = self._actions[action_id]
        button = QPushButton(text, self)
        button.setProperty("kind", "small")
        button.setObjectName(f"options_{action_id}")
        button.clicked.connect(action.trigger)
        action.changed.connect(self._sync_buttons)
        return button

    # What is shown.

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        n_changed = len(not_default(self._options))
        return DockTitle("Options", f"{n_changed} changed" if n_changed else "all default")

    @property
    def open_sections(self) -> tuple[str, ...]:
        """The ids of the sections that are open."""
        return tuple(name for name, section in self.sections.items() if section.is_open)

    def open_only(self, ids: Collection[str]) -> None:
        """Open these sections and close the others."""
        for name, section in self.sections.items():
            section.set_open(is_open=name in ids)

    def show_options(self, options: Options) -> None:
        """Show the newest options asked for."""
        self._options = options
        self._show()

    def show_refusal(self, asked: Options, before: Options, words: str) -> bool:
        """Say at its field why a change is impossible; False if nobody would see it there."""
        changed = changed_fields(before, asked)
        row = next((row for field, row in self.rows.items() if field in changed), None)
        if row is None or not self.isVisible():
            return False
        section = next(s for s in self.sections.values() if row.field in s.group.fields)
        section.set_open(is_open=True)
        row.show_refusal(getattr(asked, row.field), words)
        self.area.ensureWidgetVisible(row)
        return True

    def _on_facts(self, _fact: object = None) -> None:
        self._show()

    def _on_model(self, _model: object) -> None:
        """Nothing typed for another model stays."""
        for field, row in self.rows.items():
            row.show_value(getattr(self._options, field), is_other_model=True)
        self._show()

    def _show(self) -> None:
        options, state = self._options, self._state
        self._facts = panel_facts(state, options)
        overrides = self.rows["tensor_overrides"].control
        assert isinstance(overrides, OverridesEditor)
        overrides.show_model(() if state.model is None else state.model.tensors, self._facts.names)
        for field, row in self.rows.items():
            row.show_value(getattr(options, field))
            self._note(field)
        for section in self.sections.values():
            section.show_changed(sum(self.rows[f].is_changed for f in section.group.fields))
        self.running.setVisible(state.run.state is not RunState.IDLE)
        self._sync_buttons()
        self.dock_title_changed.emit(self.dock_title)

    def _note(self, field: str) -> None:
        row = self.rows[field]
        words = note(field, row.text, self._options, self._facts)
        row.show_note(words, why_off(field, self._options, self._facts))

    def _sync_buttons(self) -> None:
        for action_id, button in (
            ("manual_options", self.help_button),
            ("copy_command", self.copy_button),
            ("reset_options", self.reset_button),
        ):
            action = self._actions[action_id]
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())

    # What a person does.

    def _on_changed(self, field: str, value: Any) -> None:
        self.asked.emit({field: value})

    def _on_edited(self, field: str) -> None:
        self._note(field)

    def _on_folded(self) -> None:
        self.folded.emit(self.open_sections)
