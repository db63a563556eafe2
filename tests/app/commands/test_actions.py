"""Commands come from one table; what cannot be used says why."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QObject

from app.commands.actions import ActionSet, tooltip
from app.commands.keys import key_sheet
from app.commands.spec import ActionSpec, Need
from app.commands.table import ACTIONS, MENUS, PANE_KEYS, PANES, RECENT, THEME, THEME_MENU
from app.theme.theme import Theme, ThemeChoice

RUN = ActionSpec("run", "Run", "Run the prompt", ("F5",), Need.MODEL | Need.IDLE)
STOP = ActionSpec("stop", "Stop", "Stop it", needs=Need.BUSY)


class Handlers(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def run(self) -> None:
        self.called.append("run")

    def stop(self) -> None:
        self.called.append("stop")


@pytest.fixture
def owner(qapp):
    owner = Handlers()
    owner.theme = Theme(ThemeChoice.LIGHT, owner)
    yield owner
    owner.deleteLater()


def make(owner, specs=(RUN, STOP)) -> ActionSet:
    return ActionSet(specs, {"run": owner.run, "stop": owner.stop}, owner.theme, owner)


def test_a_command_calls_its_handler(owner):
    actions = make(owner)
    actions.set_facts(Need.MODEL | Need.IDLE)

    actions["run"].trigger()

    assert owner.called == ["run"]


def test_what_is_missing_disables_a_command_and_stands_in_its_tooltip(owner):
    actions = make(owner)

    actions.set_facts(Need.IDLE)

    assert not actions["run"].isEnabled()
    assert actions["run"].toolTip() == "Run the prompt (F5): open a model first"


def test_a_command_can_have_other_words_and_needs(owner):
    actions = make(owner)
    actions.set_facts(Need.MODEL | Need.IDLE)

    actions.use(replace(RUN, text="Embed", tip="Embed the text", needs=Need.MODEL | Need.TEXT))
    without = (actions["run"].text(), actions["run"].isEnabled(), actions["run"].toolTip())
    actions.set_facts(Need.MODEL | Need.IDLE | Need.TEXT)
    actions["run"].trigger()

    assert without == ("Embed", False, "Embed the text (F5): the text is empty")
    assert actions["run"].toolTip() == "Embed the text (F5)"
    assert owner.called == ["run"]


def test_no_graph_and_no_weights_are_two_reasons():
    run = next(spec for spec in ACTIONS if spec.id == "run")

    assert tooltip(run, Need.GRAPH).endswith("this version has no graph for this model")
    assert tooltip(run, Need.RUNNABLE).endswith("the file does not hold the weights")


def test_a_usable_commands_tooltip_has_its_key():
    assert tooltip(RUN) == "Run the prompt (F5)"
    assert tooltip(STOP) == "Stop it"


@pytest.mark.parametrize(
    "specs",
    [(RUN,), (RUN, RUN, STOP), (RUN, ActionSpec("stop", "Stop", "", ("F5",)))],
    ids=["handler without command", "same id", "same key"],
)
def test_a_table_that_contradicts_itself_is_refused(owner, specs):
    with pytest.raises(ValueError, match=r"two commands|differ"):
        make(owner, specs)


def test_every_command_stands_in_a_menu():
    listed = {i for _, ids in MENUS for i in ids} | set(THEME_MENU)

    assert {spec.id for spec in ACTIONS} == listed - {"", RECENT, PANES, THEME}


def test_the_key_sheet_has_every_command_and_every_key():
    sheet = key_sheet(ACTIONS, MENUS)

    assert all(spec.text.rstrip("…") in sheet for spec in ACTIONS)
    assert "Ctrl+O" in sheet
    assert "Shift+F5 or Esc" in sheet


def test_the_key_sheet_has_no_empty_part():
    sheet = key_sheet(ACTIONS, [*MENUS, ("Theme", THEME_MENU)], PANE_KEYS)

    tables = [part for part in sheet.split("## ")[1:] if part]
    assert all(len(table.strip().splitlines()) > 3 for table in tables)


def test_a_prompt_and_an_engine_that_holds_the_run_are_asked_for():
    run, export = (next(s for s in ACTIONS if s.id == name) for name in ("run", "export"))

    assert tooltip(run, Need.PROMPT) == "Run the prompt (F5): the prompt is empty"
    assert tooltip(export, Need.HELD & export.needs).endswith("has ended; run again")
