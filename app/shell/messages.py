"""What is said to people in a message bar, and what each message offers to do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.state.option_changes import not_default
from app.theme.text import bytes_text, plural
from engine.service.messages import DEMO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.options import Options
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


def failed_message(failed: Failed, topic: str = "") -> Message:
    """A request that could not be done."""
    return Message(failed.title, failed.sentence, failed.hint, failed.details, topic=topic)


def model_message(model: ModelSummary) -> Message | None:
    """What an opened file cannot do, or does not do as it asks; None for a sound one.

    A problem holds its title, sentence and hint in lines.
    """
    problem = model.plan_problem or model.run_problem
    if not problem:
        return text_message(model.text_faults)
    title, sentence, hint, *_ = (*problem.split("\n", 2), "", "")
    if model.plan_problem:
        listed = f"Its {len(model.tensors)} tensors are listed below."
        hint = f"{hint} {listed}" if hint else listed
    return Message(title, sentence, hint, topic="model")


def text_message(faults: Sequence[str]) -> Message | None:
    """What of a tokenizer or a chat template is wrong; None when nothing is."""
    if not faults:
        return None
    title, *more = faults
    return Message(title, " ".join(more), "Plan and times do not depend on it.", topic="model")


ON_TOOLBAR = frozenset({"n_gpu_layers", "n_ctx", "op_offload"})
"""Options that nobody has to be told of: they are in view."""


def recalled_message(options: Options | None) -> Message | None:
    """A model has the options of last time; None where the toolbar shows all of them."""
    if options is None or ON_TOOLBAR.issuperset(not_default(options)):
        return None
    return Message(
        "This model has the options it had last.",
        shlex.join(options.command_args()),
        actions=("show_options", "reset_options"),
        topic="model",
    )


def unfit_message(failed: Failed) -> Message:
    """The options of last time cannot be met any more."""
    return Message(
        "This model is opened with its own options: those it had last do not fit here.",
        failed.title,
        failed.sentence,
        failed.details,
        topic="options",
    )


def waiting_message(path: str, until: str) -> Message:
    """A file that is opened later; `until` says when."""
    name = "The demo model" if path == DEMO else Path(path).name
    return Message(
        f"{name} waits.",
        f"It is opened when {until}.",
        "Stop ends that now.",
        actions=("stop",),
        topic="model",
    )


def dropped_message(paths: Sequence[str]) -> Message | None:
    """Why what was dropped cannot be opened; None for one file of this computer.

    The path of what is elsewhere is empty.
    """
    if len(paths) > 1:
        return Message(
            f"{len(paths)} files were dropped.",
            "One model is open at a time.",
            "Drop one GGUF file.",
            topic="model",
        )
    if not paths or not paths[0]:
        return Message(
            "What was dropped is no file of this computer.",
            "A model is opened from a file.",
            "Download it and drop the GGUF file.",
            topic="model",
        )
    path = Path(paths[0])
    if path.is_dir():
        return Message(
            f"{path.name} is a folder.",
            "A model is one GGUF file.",
            "Drop the file that is in it.",
            str(path),
            topic="model",
        )
    return None


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


LOST_TOPIC = "lost"


def lost_message(n_lost: int) -> Message:
    """The recorder was full."""
    return Message(
        f"{plural(n_lost, 'record')} of the run were not kept.",
        "The recorder was full; the start of the run is complete, sums over its end are too small.",
        "Run with fewer tokens to see all of it.",
        topic=LOST_TOPIC,
    )


def protocol_message(theirs: int, ours: int) -> Message:
    """The engine is of another version."""
    return Message(
        "The engine and the window are of different versions.",
        f"The engine speaks protocol {theirs}, the window {ours}.",
        "Install Splitscope again.",
        topic="engine",
    )
