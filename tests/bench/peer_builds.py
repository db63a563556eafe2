"""Which build of llama.cpp to compare with: the fastest that runs here, and why that one.

xllamacpp (from pip) is one library for every processor with AVX2; node-llama-cpp (from npm) has a
variant for each kind of processor. The first is taken unless it lacks something that this processor
has, for then the other is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import paths
from engine.backends.cpu.features import ggml_features
from tests.bench.peer_download import PIP, VARIANTS, fetched
from tests.bench.wire import Child, ChildError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHILD = "tests.bench.peer_child"

PEERS = paths.cache_dir() / "peers"
"""Where packages are kept that were fetched once."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build that runs here. `system_info` is what llama.cpp prints, `version` is ggml's."""

    name: str
    folder: Path
    system_info: str
    version: str


@dataclass(frozen=True, slots=True)
class Peer:
    """The build that was chosen, or None, and why."""

    build: Build | None
    why: str

    def child(self, log: Path) -> Child:
        """A process of it."""
        assert self.build is not None, self.why
        return Child(CHILD, [str(self.build.folder)], log)


def find_peer(log: Path, say: Callable[[str], None]) -> Peer:
    """Fetch what is needed and choose; packages that were fetched once stay in the cache."""

    def look(package: str) -> Build:
        return inspected(package, fetched(package, PEERS, say), log)

    return choose(look, wanted(ggml_features()))


def wanted(features: frozenset[str]) -> frozenset[str]:
    """What a build should use; the wide form of an instruction stands for the narrow one."""
    return features - {"AVX_VNNI"} if "AVX512_VNNI" in features else features


def choose(look: Callable[[str], Build], features: frozenset[str]) -> Peer:
    """The build to take where these features are wanted, by the names that ggml prints.

    `look` gives the build of a package; ChildError when it cannot be had or does not run here.
    """
    builds: list[Build] = []
    reasons = []
    for package in (PIP, VARIANTS):
        try:
            build = look(package)
        except ChildError as error:
            reasons.append(f"{package} cannot be used: {error}")
            continue
        builds.append(build)
        lacking = lacks(build, features)
        if not lacking:
            reasons.append(f"{package} uses all that this processor offers")
            break
        reasons.append(f"{package} is built without {', '.join(lacking)}")
    # The first where both lack as much.
    best = min(builds, key=lambda build: len(lacks(build, features)), default=None)
    return Peer(best, "; ".join(reasons))


def lacks(build: Build, features: frozenset[str]) -> list[str]:
    """What is wanted and the build does not use."""
    return sorted(features - used_features(build.system_info))


def used_features(system_info: str) -> frozenset[str]:
    """Names from `CPU : AVX = 1 | AVX2 = 1 | ...`; SVE_CNT comes with its number."""
    names = set()
    for word in system_info.split(":", 1)[-1].split("|"):
        name, _, value = (part.strip() for part in word.partition("="))
        if name and value not in ("", "0"):
            names.add(name if value == "1" else f"{name}={value}")
    return frozenset(names)


def inspected(package: str, folder: Path, log: Path) -> Build:
    """What a build says of itself, asked in a process of its own, which may well crash."""
    with Child(CHILD, [str(folder)], log) as child:
        info = child.ask("info")
    return Build(package, folder, info["system_info"], f"{info['version']} {info['commit']}")
