"""What is said of backends that were loaded, were not, or were taken out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.shell.messages import Message
from app.theme.text import plural, sentence
from engine.core.load_report import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from engine.core.load_report import Attempt, LoadReport
    from engine.core.table import PlanTable

TOPIC = "backend"
PLUGIN_PREFIX = "splitscope_backend_"
IN_THE_TABLE = "The devices' table has it, and says whether it is tried at the next start."
LOAD_AGAIN = "It was loaded by hand. Load it once more to try it again."
LIBRARY_ENDINGS = (".so", ".dll", ".dylib")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a request to load brought: files in use now, and the names of new devices."""

    files: tuple[str, ...]
    devices: tuple[str, ...]


def is_backend_file(path: str) -> bool:
    """Whether a file is one of a backend by its name: a plug-in, or a library of the system's."""
    name = Path(path).name
    is_plugin = name.startswith(PLUGIN_PREFIX) and name.endswith(".py")
    return is_plugin or name.endswith(LIBRARY_ENDINGS)


def loaded_files(report: LoadReport) -> tuple[str, ...]:
    """The files of a report that are in use."""
    return tuple(attempt.path for attempt in report.attempts if attempt.outcome.is_loaded)


def loading_words(paths: Sequence[str]) -> str:
    """What is being done, for a progress line."""
    what = Path(paths[0]).name if len(paths) == 1 else plural(len(paths), "file")
    return f"Trying {what} in a process of its own"


def loaded_message(loaded: Loaded, report: LoadReport) -> Message:
    """Something was loaded: which devices are new, and what became of the other files."""
    others = [a for a in _found(report) if not a.outcome.is_loaded]
    files = _names(loaded.files)
    if loaded.devices:
        verb = "is" if len(loaded.devices) == 1 else "are"
        title = f"{_joined(loaded.devices)} {verb} here, loaded from {files}."
    else:
        title = f"{files}: loaded, and hidden: its devices are used through another backend."
    if not others:
        return Message(title, topic=TOPIC)
    return Message(title, _others(others), "", _details(others), ("show_load_report",), TOPIC)


def nothing_message(path: str, report: LoadReport) -> Message:
    """Nothing was loaded, and why."""
    title = f"{Path(path).name}: no backend was loaded."
    tried = _found(report)
    if not tried:
        words = report.nothing_words(path)
        hint = "A plug-in is called splitscope_backend_NAME.py, a library libggml-NAME.so."
        return Message(title, words, hint, path, topic=TOPIC)
    first, n_others = tried[0], len(tried) - 1
    words = sentence(first.reason)
    if n_others:
        words = sentence(f"{Path(first.path).name}: {first.reason}")
    hint = f"{plural(n_others, 'other file')} cannot be used either." if n_others else ""
    return Message(title, words, hint, _details(tried), ("show_load_report",), TOPIC)


def not_again_message(reasons: Mapping[str, str], at_start: Collection[str]) -> Message:
    """Files that were to be loaded at the start or after the engine ended, and why they are not.

    `at_start` are the files of every start: only these stay in the devices' table.
    """
    first = next(iter(reasons.values()))
    stays = any(path in at_start for path in reasons)
    return Message(
        f"{_names(tuple(reasons))}: not loaded this time.",
        sentence(first),
        IN_THE_TABLE if stays else LOAD_AGAIN,
        "\n".join(f"{path}: {reason}" for path, reason in reasons.items()),
        ("show_devices" if stays else "load_backend",),
        TOPIC,
    )


def not_remembered_message(path: str, reason: str) -> Message:
    """A file that is not loaded at every start, since nobody would be asked then."""
    return Message(
        f"{Path(path).name}: not loaded at every start.",
        sentence(f"It would be run unasked, and {reason}"),
        "Put it into a folder that only you may write, and load it from there.",
        path,
        topic=TOPIC,
    )


def in_use_message(name: str, n_nodes: int) -> Message:
    """A device that is to be unloaded takes part in the plan or the run that are shown."""
    runs = f"{plural(n_nodes, 'operation')} of this plan run on it"
    what = runs if n_nodes else "The options ask for it"
    return Message(
        f"{name} is in use.",
        f"{what}: the model is planned anew without it, and what is loaded on it is released.",
        "Undo loads it again.",
        actions=("unload_backend",),
        topic=TOPIC,
    )


def running_message(name: str) -> Message:
    """Nothing is unloaded under a run."""
    return Message(
        f"{name} cannot be unloaded now.",
        "A run is under way, and it may use it.",
        "Stop the run, or wait for its end.",
        actions=("stop",),
        topic=TOPIC,
    )


def unloaded_message(name: str, *, is_at_start: bool) -> Message:
    """It is gone."""
    later = "It is loaded again at the next start." if is_at_start else ""
    return Message(f"{name} is unloaded.", later, topic=TOPIC)


def nodes_on(plan: PlanTable | None, names: Iterable[str]) -> int:
    """How many nodes of a plan run on devices of these names."""
    if plan is None:
        return 0
    wanted = set(names)
    counts = zip(plan.devices, plan.nodes_per_device(), strict=True)
    return sum(int(n) for row, n in counts if row.name in wanted)


def _found(report: LoadReport) -> list[Attempt]:
    return [a for a in report.attempts if a.outcome is not Outcome.NOT_FOUND]


def _names(paths: Sequence[str]) -> str:
    return _joined([Path(path).name for path in paths])


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _others(attempts: Sequence[Attempt]) -> str:
    n_refused = sum(a.outcome is Outcome.REFUSED for a in attempts)
    n_rest = len(attempts) - n_refused
    parts = [
        f"{plural(n, 'other file')} {'was' if n == 1 else 'were'} {words}"
        for n, words in ((n_rest, "not chosen"), (n_refused, "refused"))
        if n
    ]
    return f"{', '.join(parts)}."


def _details(attempts: Sequence[Attempt]) -> str:
    return "\n".join(f"{a.path}: {a.outcome.value}, {a.reason}" for a in attempts)
