"""What was tried to load backends: every path, what was found there, and what became of it."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(enum.StrEnum):
    """What became of a path that was tried."""

    REGISTERED = "registered"
    REFUSED = "refused"
    NOT_CHOSEN = "not chosen"
    """Another variant of the same backend has a higher score."""
    HIDDEN = "hidden"
    """Registered, and every device of it is used through another backend."""
    NOT_FOUND = "not found"
    UNLOADED = "unloaded"
    """It was registered, and was taken out again."""

    @property
    def is_loaded(self) -> bool:
        """Whether the library is in use now."""
        return self in (Outcome.REGISTERED, Outcome.HIDDEN)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a throwaway process found out about a library.

    `symbols` are the functions and constants of the contract that it has; `api_version` and
    `score` are None where it does not say. `error` is the text of the operating system's loader,
    or what the library did (raised, ended the process); with `opened` false it could not be opened.
    """

    opened: bool
    symbols: tuple[str, ...] = ()
    api_version: int | None = None
    score: int | None = None
    devices: tuple[str, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Probe:
        """What `to_json` gave."""
        lists = {name: tuple(values.get(name, ())) for name in ("symbols", "devices")}
        return Probe(**(values | lists))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One path that was tried.

    `kind` is "python" or "ggml"; `backend` and `variant` are what its file name says; `why` says
    why this path was tried. `symbol` is the function that makes the family, empty where it lacks
    one. `reason` says, in words for people, why the outcome is what it is.
    """

    path: str
    kind: str
    backend: str
    variant: str
    why: str
    outcome: Outcome
    reason: str = ""
    found: bool = True
    opened: bool = False
    symbol: str = ""
    api_version: int | None = None
    score: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def ended(self, outcome: Outcome, reason: str = "") -> Attempt:
        """The same with another end."""
        return replace(self, outcome=outcome, reason=reason)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Every path tried, in the order in which they were."""

    attempts: tuple[Attempt, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"attempts": [attempt.to_json() for attempt in self.attempts]}

    def __add__(self, other: LoadReport) -> LoadReport:
        return LoadReport(self.attempts + other.attempts)

    @property
    def has_loaded(self) -> bool:
        """Whether anything was registered."""
        return any(a.outcome.is_loaded for a in self.attempts)

    def nothing_words(self, path: str) -> str:
        """Why none of a folder's files was tried, or no file at `path`, which is absolute."""
        if any(a.path == path and a.outcome is Outcome.NOT_FOUND for a in self.attempts):
            return "There is no such file or folder."
        return "No file there is called as a backend library is."

    def of(self, kind: str, backend: str) -> LoadReport:
        """What was tried for one backend."""
        return LoadReport(tuple(a for a in self.attempts if (a.kind, a.backend) == (kind, backend)))

    @staticmethod
    def joined(reports: Iterable[LoadReport]) -> LoadReport:
        """All of them in one."""
        return sum(reports, LoadReport())


class Linkage(enum.StrEnum):
    """Whether a backend came with Splitscope or was loaded."""

    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Origin:
    """How a backend family got here.

    `backend` is its name in options and file names; `place` the module, or the file it was loaded
    from. `option` is what it is turned on and off with, `default` what that is on this platform,
    `decided_by` who decided: the default, a variable, the settings, the command line; for a loaded
    one why its path was tried. `kind` is that of its library, empty for a static one. `attempts`
    are the paths that were tried for it.
    """

    backend: str
    linkage: Linkage
    place: str
    option: str
    default: str
    decided_by: str
    symbol: str
    api_version: int
    kind: str = ""
    score: int | None = None
    attempts: tuple[Attempt, ...] = ()
