"""OptionMemory: the options each model had last, for when it is opened again."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from app.state.option_changes import not_default
from engine.core.options import DEFAULTS, Options, checked
from engine.errors import PlacementError

if TYPE_CHECKING:
    from app.state.settings import Settings

log = logging.getLogger(__name__)

MAX_MODELS = 32


class OptionMemory:
    """By the model's path, newest last. Only what differs from the defaults is written."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def recall(self, path: str) -> Options | None:
        """The options a model had last; None for one that is not known, or has unusable ones."""
        values = self._sets().get(path)
        if values is None:
            return None
        try:
            return checked(DEFAULTS, **values)
        except (PlacementError, TypeError) as error:
            log.warning("The options of %s cannot be used and are dropped: %s", path, error)
            self.forget(path)
            return None

    def remember(self, path: str, options: Options) -> None:
        """Keep the options of a model."""
        sets = self._sets()
        sets.pop(path, None)
        sets[path] = {name: getattr(options, name) for name in not_default(options)}
        self._write(sets)

    def forget(self, path: str) -> None:
        """Let a model have its own options next time."""
        sets = self._sets()
        if sets.pop(path, None) is not None:
            self._write(sets)

    def _sets(self) -> dict[str, dict[str, Any]]:
        try:
            sets = json.loads(self._settings.option_sets)
        except ValueError:
            sets = None
        if isinstance(sets, dict) and all(isinstance(values, dict) for values in sets.values()):
            return sets
        log.warning("The remembered options cannot be read and are dropped.")
        self._write({})
        return {}

    def _write(self, sets: dict[str, dict[str, Any]]) -> None:
        newest = dict([*sets.items()][-MAX_MODELS:])
        self._settings.option_sets = json.dumps(newest)
