"""llama.cpp in a process of its own: `python -m tests.bench.peer_child FOLDER`, asked in JSON."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.llama_api import Llama, open_build
from tests.bench.wire import serve

if TYPE_CHECKING:
    from collections.abc import Callable


class PeerEngine:
    """Answers requests with one build of llama.cpp."""

    def __init__(self, folder: Path) -> None:
        self._call: Callable[..., Any] = open_build(folder)
        self._llama: Llama | None = None

    def info(self) -> dict[str, Any]:
        """What the build is and which instructions it uses."""
        names = ("llama_print_system_info", "ggml_version", "ggml_commit")
        system_info, version, commit = (self._call(name).decode().strip() for name in names)
        return {"system_info": system_info, "version": version, "commit": commit}

    def load(self, path: str, n_threads: int, n_ctx: int) -> dict[str, Any]:
        """Load a model; how long that took."""
        start = time.perf_counter()
        self._llama = Llama(self._call, Path(path), n_threads=n_threads, n_ctx=n_ctx)
        return {"seconds": time.perf_counter() - start}

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        """Seconds for all tokens as one prompt."""
        llama = self._live()
        llama.clear()
        start = time.perf_counter()
        llama.decode(tokens)
        return {"seconds": time.perf_counter() - start}

    def decode(self, tokens: list[int]) -> dict[str, Any]:
        """Seconds for each of the tokens, one after the other."""
        llama = self._live()
        llama.clear()
        each = []
        for token in tokens:
            start = time.perf_counter()
            llama.decode([token])
            each.append(time.perf_counter() - start)
        return {"each": each, "seconds": sum(each)}

    def _live(self) -> Llama:
        if self._llama is None:
            raise RuntimeError("no model is loaded")
        return self._llama


def main() -> None:
    """Answer until nobody asks any more."""
    engine = PeerEngine(Path(sys.argv[1]))
    serve(
        {
            "info": engine.info,
            "load": engine.load,
            "prefill": engine.prefill,
            "decode": engine.decode,
        }
    )


if __name__ == "__main__":
    main()
