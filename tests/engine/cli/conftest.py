"""The command line, called in this process; what must be seen from outside starts another."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from engine.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys):
    """Return a function that runs a command."""

    def call(*words: object) -> Done:
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call
