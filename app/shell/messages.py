"""What is said to people in a message bar, and what each message offers to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.theme.text import bytes_text

if TYPE_CHECKING:
    from engine.core.summary import ModelSummary
    from engine.service.messages import EngineDied, Exported, Failed


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `actions` are ids of commands, the first is the main one.

    `topic` is what it is about: a newer message about the same replaces it.
    """

    title: str
    sentence: str = ""
    hint: str = ""
    details: str = ""
    actions: tuple[str, ...] = ()
    topic: str = ""

    @property
    def text(self) -> str:
        """All of it, for the clipboard and the log."""
        lines = (" ".join(p for p in (self.title, self.sentence) if p), self.hint, self.details)
        return "\n".join(line for line in lines if line)


def failed_message(failed: Failed) -> Message:
    """A request that could not be done."""
    return Message(failed.title, failed.sentence, failed.hint, failed.details)


def model_message(model: ModelSummary) -> Message | None:
    """What an opened file cannot do; None for a sound one."""
    name = Path(model.path).name
    if model.plan_problem:
        return Message(
            f"{name} cannot be planned.",
            model.plan_problem,
            f"Its {len(model.tensors)} tensors are listed below.",
            topic="model",
        )
    if not model.run_problem:
        return None
    if "early" in model.run_problem or "ends" in model.run_problem:
        title = f"{name} ends too early. It can be planned, not run."
    else:
        title = f"{name} can be planned, not run."
    sentence = "" if model.run_problem == title else model.run_problem
    return Message(title, sentence, topic="model")


def died_message(died: EngineDied, *, restarts: bool, kept: str) -> Message:
    """The engine's process ended by itself; `kept` says what is still there."""
    doing = f" {died.doing}" if died.doing else ""
    details = "\n".join(part for part in (f"exit code {died.exit_code}", died.details) if part)
    if not restarts:
        return Message(
            f"The engine stopped{doing} and was not restarted.",
            "It ended before it was ready." if not died.doing else "",
            "Details hold its last output.",
            details,
            ("restart_engine",),
            "engine",
        )
    return Message(
        f"The engine stopped{doing} and was restarted.", kept, "", details, ("run",), "engine"
    )


def exported_message(exported: Exported) -> Message:
    """A trace was written."""
    return Message(
        f"The trace is written, {bytes_text(exported.n_bytes)}.",
        str(exported.path),
        topic="export",
    )


def protocol_message(theirs: int, ours: int) -> Message:
    """The engine is of another version."""
    return Message(
        "The engine and the window are of different versions.",
        f"The engine speaks protocol {theirs}, the window {ours}.",
        "Install Splitscope again.",
        topic="engine",
    )
