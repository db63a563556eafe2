"""Loader: backends from files, in the order and by the rules of ggml's own loader.

    loader = Loader(registry, kinds, default_folders(), named_files())
    loader.load_all()                   # every backend, the best variant of each
    loader.load(Path("libggml-cpu-haswell.so"))
    loader.unload(loader.loaded("CPU"))

Nothing here raises for a library that cannot be used: each path is a row of the report, with the
reason. Code runs in a process of its own first. Source: SCHED.md 2.3-2.6. Where ggml takes files as
a folder lists them, they are taken by name: of equal scores the first wins, on every computer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.backend.computer import physical_cores
from engine.backend.search_paths import SearchPath, distrust, installed_file, look_at
from engine.core.load_report import Attempt, Linkage, LoadReport, Origin, Outcome, Probe
from engine.errors import DeviceError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from engine.backend.interface import BackendReg
    from engine.backend.library_kind import LibraryKind
    from engine.backend.registry import Registry

ASKED_FOR = "it was asked for"
REMEMBERED = "it is loaded at every start"
_NOT_SAID = "nothing says why"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may be a library."""

    kind: LibraryKind
    path: Path
    backend: str
    variant: str
    place: SearchPath

    @property
    def code(self) -> Path:
        """The file to load; without links where it was checked, so that none is led elsewhere."""
        return self.path.resolve() if self.place.must_be_own else self.path

    @property
    def attempt(self) -> Attempt:
        """Its row in the report, before anything was tried."""
        return Attempt(
            str(self.path), self.kind.name, self.backend, self.variant, self.place.why,
            Outcome.REFUSED,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tried:
    """A candidate after its trial; refused when `attempt` has a reason."""

    candidate: _Candidate
    attempt: Attempt
    probe: Probe | None = None

    @property
    def score(self) -> int:
        """How well it fits, above 0; 0 for one that cannot be chosen."""
        return 0 if self.attempt.reason else self.attempt.score or 0


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A family that was loaded, and from where."""

    kind: LibraryKind
    attempt: Attempt


class Loader:
    """Loads into `registry`. `folders` are searched, `files` are loaded after everything else."""

    def __init__(
        self,
        registry: Registry,
        kinds: Sequence[LibraryKind],
        folders: Sequence[SearchPath] = (),
        files: Sequence[SearchPath] = (),
    ) -> None:
        self.registry = registry
        self._kinds = tuple(kinds)
        self._folders = tuple(folders)
        self._files = tuple(files)
        self._loaded: dict[BackendReg, _Loaded] = {}
        self._attempts: dict[str, Attempt] = {}

    @property
    def report(self) -> LoadReport:
        """Every path tried so far, each with its newest end, as things are now."""
        now = {loaded.attempt.path: self._ended(reg) for reg, loaded in self._loaded.items()}
        return LoadReport(tuple(now.get(path, old) for path, old in self._attempts.items()))

    def load_all(self) -> LoadReport:
        """Every backend: by the folders, from installed packages, from the files that are named."""
        found = self._load_folders(self._folders)
        return found + self._load_installed() + self.load_named()

    def load_best(self, backend: str) -> LoadReport:
        """The best variant of one backend, else its base file; of each kind of library."""
        return LoadReport.joined(
            self._load_best(kind, backend, self._folders) for kind in self._kinds
        )

    def load(self, path: Path, *, is_asked: bool = True) -> LoadReport:
        """One file; or a folder, which then replaces the folders that are searched.

        Without `is_asked` it was asked for at another time, and must be the user's own.
        """
        why = ASKED_FOR if is_asked else REMEMBERED
        place = SearchPath(path.absolute(), why, must_be_own=not is_asked)
        if look_at(path).is_folder and self._kind_of(path) is None:
            return self._load_folders((place,))
        return self._load_file(place)

    def load_named(self) -> LoadReport:
        """The files that are loaded whatever is found elsewhere."""
        return LoadReport.joined(self._load_file(place) for place in self._files)

    def unload(self, reg: BackendReg) -> LoadReport:
        """Take out a family that was loaded; nobody may use it any more."""
        self.registry.unregister(reg)
        loaded = self._loaded.pop(reg)
        loaded.kind.close(reg)
        attempt = loaded.attempt.ended(Outcome.UNLOADED)
        self._attempts[attempt.path] = attempt
        return LoadReport((attempt,))

    def loaded(self, name: str) -> BackendReg:
        """The newest loaded family by its name, or that of its backend, a device or its file.

        Raises:
            DeviceError: nothing of that name was loaded.
        """
        for reg, loaded in reversed(self._loaded.items()):
            devices = [device.facts.name for device in reg.devices()]
            names = (reg.name, loaded.attempt.backend, loaded.attempt.path, *devices)
            if name.lower() in (known.lower() for known in names):
                return reg
        there = ", ".join(reg.name for reg in self._loaded)
        raise DeviceError(
            f"{name} cannot be unloaded.",
            "No backend of that name was loaded from a file.",
            f"Loaded are {there}." if there else "Built-in backends are left out with --backends.",
        )

    # Where to look.

    def _load_folders(self, folders: Sequence[SearchPath]) -> LoadReport:
        return LoadReport.joined(
            self._load_best(kind, backend, folders)
            for kind in self._kinds
            for backend in _backends(kind, folders)
        )

    def _load_installed(self) -> LoadReport:
        return LoadReport.joined(
            self._load_one(_Candidate(kind, path, backend, "", installed_file(path, why)))
            for kind in self._kinds
            for backend, path, why in kind.installed()
        )

    def _load_best(
        self, kind: LibraryKind, backend: str, folders: Sequence[SearchPath]
    ) -> LoadReport:
        variants = [
            candidate
            for folder in folders
            for candidate in _candidates(kind, folder)
            if candidate.backend == backend and candidate.variant
        ]
        tried = [_with_score(each) for each in self._try_all(variants)]
        best = max(tried, key=lambda each: each.score, default=None)
        if best is not None and best.score:
            return self._remember(
                self._register(each) if each is best else _not_chosen(each, best) for each in tried
            )
        refused = self._remember(each.attempt for each in tried)
        return refused + self._load_base(kind, backend, folders)

    def _load_base(
        self, kind: LibraryKind, backend: str, folders: Sequence[SearchPath]
    ) -> LoadReport:
        """The base file of the first folder that has one, whatever comes of it."""
        report = LoadReport()
        for folder in folders:
            path = folder.path / kind.base_file(backend)
            report += self._load_one(_Candidate(kind, path, backend, "", folder))
            if report.attempts[-1].found:
                break
        return report

    def _load_file(self, place: SearchPath) -> LoadReport:
        kind = self._kind_of(place.path)
        if kind is None:
            look = look_at(place.path)
            reason = look.problem or f"no backend library is called {place.path.name}"
            attempt = Attempt(str(place.path), "", "", "", place.why, Outcome.REFUSED, reason)
            return self._remember([_not_found(attempt) if look.is_nothing else attempt])
        backend, variant = kind.backend_of(place.path.name) or (place.path.stem, "")
        return self._load_one(_Candidate(kind, place.path, backend, variant, place))

    def _kind_of(self, path: Path) -> LibraryKind | None:
        named = (kind for kind in self._kinds if kind.backend_of(path.name))
        ending = (kind for kind in self._kinds if path.suffix in kind.suffixes)
        return next(named, None) or next(ending, None)

    # One file.

    def _load_one(self, candidate: _Candidate) -> LoadReport:
        return self._remember([self._register(self._try(candidate))])

    def _try_all(self, candidates: Sequence[_Candidate]) -> list[_Tried]:
        """Each in its process, several at once: starting one takes longer than what it does."""
        if not candidates:
            return []
        n_workers = min(len(candidates), physical_cores())
        with ThreadPoolExecutor(n_workers, thread_name_prefix="trial") as pool:
            return list(pool.map(self._try, candidates))

    def _try(self, candidate: _Candidate) -> _Tried:
        """What a process of its own says of it, unless it must not even be tried."""
        attempt = candidate.attempt
        if look_at(candidate.path).is_nothing:
            return _Tried(candidate, _not_found(attempt))
        reason = self._reason_not_to_try(candidate)
        if reason:
            return _Tried(candidate, attempt.ended(Outcome.REFUSED, reason))
        probe = candidate.kind.probe(candidate.code)
        init = candidate.kind.init_symbol
        attempt = replace(
            attempt,
            opened=probe.opened,
            symbol=init if init in probe.symbols else "",
            api_version=probe.api_version,
            score=probe.score,
        )
        reason = "" if probe.opened else f"it cannot be opened: {probe.error or _NOT_SAID}"
        if probe.score == 0:
            reason = "its score is 0: it does not support this computer"
        return _Tried(candidate, attempt.ended(Outcome.REFUSED, reason), probe)

    def _reason_not_to_try(self, candidate: _Candidate) -> str:
        path, look = candidate.path, look_at(candidate.path)
        if not look.is_file:
            return look.problem or ("it is a folder" if look.is_folder else "it is no file")
        if any(_same_file(path, loaded.attempt.path) for loaded in self._loaded.values()):
            return "it is loaded already"
        distrusted = _distrusted(candidate) if candidate.place.must_be_own else ""
        return f"it is not run unasked: {distrusted}" if distrusted else ""

    def _register(self, tried: _Tried) -> Attempt:
        """Load it into this process, unless its trial says why not."""
        candidate, attempt, probe = tried.candidate, tried.attempt, tried.probe
        if attempt.reason or probe is None:
            return attempt
        reason = _shortcoming(candidate.kind, probe)
        if reason:
            return attempt.ended(Outcome.REFUSED, reason)
        try:
            reg = candidate.kind.open(candidate.code)
        except UserError as error:
            return attempt.ended(Outcome.REFUSED, str(error))
        try:
            self.registry.register(reg, _origin(candidate, attempt, reg))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others runs here
            candidate.kind.close(reg)
            words = str(error) if isinstance(error, UserError) else f"it raised {error!r}"
            return attempt.ended(Outcome.REFUSED, words)
        self._loaded[reg] = _Loaded(candidate.kind, attempt)
        return self._ended(reg)

    def _ended(self, reg: BackendReg) -> Attempt:
        """The row of a family that is loaded, as things are now."""
        attempt = self._loaded[reg].attempt
        if self.registry.is_all_hidden(reg):
            return attempt.ended(Outcome.HIDDEN, "its devices are used through another backend")
        return attempt.ended(Outcome.REGISTERED)

    def _remember(self, attempts: Iterable[Attempt]) -> LoadReport:
        report = LoadReport(tuple(attempts))
        in_use = {loaded.attempt.path for loaded in self._loaded.values()}
        for attempt in report.attempts:
            if attempt.path not in in_use or attempt.outcome is not Outcome.REFUSED:
                self._attempts[attempt.path] = attempt
        return report


def _backends(kind: LibraryKind, folders: Sequence[SearchPath]) -> tuple[str, ...]:
    """The backends to look for, in order."""
    if kind.load_order is not None:
        return kind.load_order
    found = {candidate.backend for folder in folders for candidate in _candidates(kind, folder)}
    return tuple(sorted(found)) or ("*",)


def _candidates(kind: LibraryKind, folder: SearchPath) -> Iterator[_Candidate]:
    """The files of a folder that are of this kind by their name, by name."""
    try:
        files = sorted(folder.path.iterdir())
    except OSError:
        return
    for path in files:
        named = kind.backend_of(path.name)
        if named is not None:
            yield _Candidate(kind, path, *named, folder)


def _with_score(tried: _Tried) -> _Tried:
    """A variant without a score above 0 is refused: nothing says that it fits."""
    attempt, probe = tried.attempt, tried.probe
    if attempt.reason or (attempt.score or 0) > 0:
        return tried
    if attempt.score is not None:
        reason = f"its score is {attempt.score}: a variant is chosen for one above 0"
        return replace(tried, attempt=attempt.ended(Outcome.REFUSED, reason))
    assert probe is not None, tried
    symbol = tried.candidate.kind.score_symbol
    reason = probe.error or f"it has no {symbol}, without which a variant is not chosen"
    return replace(tried, attempt=attempt.ended(Outcome.REFUSED, reason))


def _distrusted(candidate: _Candidate) -> str:
    """Whom it cannot be trusted for: whoever may write it, or what is run with it."""
    reason = distrust(candidate.path)
    for other in candidate.kind.companions(candidate.code):
        if not reason and (why := distrust(other)):
            reason = f"of {other.name}, which it needs, {why}"
    return reason


def _not_chosen(tried: _Tried, best: _Tried) -> Attempt:
    if tried.attempt.reason:
        return tried.attempt
    reason = f"its score is {tried.score}, that of {best.candidate.path.name} is {best.score}"
    return tried.attempt.ended(Outcome.NOT_CHOSEN, reason)


def _not_found(attempt: Attempt) -> Attempt:
    ended = attempt.ended(Outcome.NOT_FOUND, "there is no such file")
    return replace(ended, found=False)


def _shortcoming(kind: LibraryKind, probe: Probe) -> str:
    """Why a library that can be opened cannot be used; "" when it can."""
    if kind.init_symbol not in probe.symbols:
        return f"it has no {kind.init_symbol}"
    if probe.error:
        return probe.error
    if probe.api_version is None:
        return "it says no version of the contract"
    if probe.api_version != kind.api_version:
        return (
            f"it was made for version {probe.api_version} of the contract, "
            f"this is {kind.api_version}"
        )
    return ""


def _origin(candidate: _Candidate, attempt: Attempt, reg: BackendReg) -> Origin:
    return Origin(
        backend=candidate.backend,
        linkage=Linkage.DYNAMIC,
        place=attempt.path,
        option="--load",
        default="off",
        decided_by=attempt.why,
        symbol=attempt.symbol,
        api_version=reg.api_version if attempt.api_version is None else attempt.api_version,
        kind=candidate.kind.name,
        score=attempt.score,
    )


def _same_file(path: Path, other: str) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
