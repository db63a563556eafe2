"""The window's commands without a window: what was asked for is kept by its id."""

from PySide6.QtCore import QObject

from app.commands.actions import ActionSet
from app.commands.spec import Need
from app.commands.table import ACTIONS


class Asked(QObject):
    """Keeps the ids of the commands that were triggered."""

    def __init__(self, theme):
        super().__init__()
        self.ids = []
        handlers = {spec.id: self._keeper(spec.id) for spec in ACTIONS}
        self.actions = ActionSet(ACTIONS, handlers, theme, self)
        self.actions.set_facts(~Need.NOTHING)

    def _keeper(self, action_id):
        return lambda: self.ids.append(action_id)
