"""What every part of the benchmark works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.wire import Child

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.arguments import Wish
    from tests.bench.ceilings import Ceilings
    from tests.bench.peer_builds import Peer
    from tests.bench.race import Say

OURS = "tests.bench.ours_child"
N_CTX = 1024


@dataclass(frozen=True, slots=True)
class Tools:
    """The wish, the other engine, the ceilings, and whom to tell; `log` takes what children say."""

    wish: Wish
    peer: Peer
    ceilings: Ceilings
    log: Path
    say: Say

    def ours(self, environment: Mapping[str, str] | None = None) -> Child:
        """Our engine in a new process."""
        return Child(OURS, [], self.log, environment=environment)

    def loaded(self, path: Path, n_threads: int, *, on_gpu: bool = False) -> Child:
        """The same with a model."""
        child = self.ours()
        try:
            child.ask("load", path=str(path), n_threads=n_threads, n_ctx=N_CTX, on_gpu=on_gpu)
        except BaseException:
            child.close()
            raise
        return child

    def loaded_peer(self, path: Path, n_threads: int) -> Child:
        """llama.cpp in a new process, with a model."""
        child = self.peer.child(self.log)
        try:
            child.ask("load", path=str(path), n_threads=n_threads, n_ctx=N_CTX)
        except BaseException:
            child.close()
            raise
        return child
