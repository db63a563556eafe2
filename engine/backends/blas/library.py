"""The BLAS that numpy calls: what it is, and how many threads of its own it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def library_name() -> str:
    """The library and its version, as numpy was built; empty when it was built without one."""
    config = cast("dict[str, Any]", np.show_config(mode="dicts"))
    blas: dict[str, Any] = config.get("Build Dependencies", {}).get("blas", {})
    # The wheels' OpenBLAS is built by SciPy's people and carries their name.
    name = str(blas.get("name", "")).removeprefix("scipy-")
    if not blas.get("found") or name in ("", "none"):
        return ""
    words = "OpenBLAS" if name.lower().startswith("openblas") else name
    return f"{words} {blas.get('version', '')}".rstrip()


class BlasThreads:
    """How many threads BLAS may use. The number belongs to the process, so it is lent for a while.

    Libraries that own their threads, such as Apple's Accelerate, go by numbers of their own.
    """

    def __init__(self) -> None:
        # Slow to import, and not needed for the library's name.
        from threadpoolctl import ThreadpoolController

        self._controller = ThreadpoolController()

    def limited(self, n_threads: int) -> AbstractContextManager[object]:
        """A call inside the block runs on so many threads; afterwards the number is as before."""
        limiter: AbstractContextManager[object] = self._controller.limit(
            limits=n_threads, user_api="blas"
        )
        return limiter

    def current(self) -> tuple[int, ...]:
        """The number of threads of each BLAS in this process."""
        found = self._controller.select(user_api="blas").info()
        return tuple(int(library["num_threads"]) for library in found)
