"""How kernels are compiled and where the machine code is kept.

numba keys its cache by a file's own time stamp, so an edit of simd.py would leave stale code of
its callers. The folder here carries a hash of the package's sources instead.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc

from engine.backends.cpu import codegen
from engine.backends.cpu.features import llvm_features
from engine.core import codebooks

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Without numba's memory management (nrt), which nothing here needs; see `_LoadingCache`."""
_WITHOUT_DOORS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_COMPILED = (
    "jit.py",
    "codegen.py",
    "simd.py",
    "*tiles.py",
    "layout.py",
    "interpreter.py",
    "bus_error.py",
    "kernels/*.py",
)
_CONSTANTS = Path(codebooks.__file__)
"""Arrays in here become part of kernels."""


def source_hash() -> str:
    """A short hash of every source that ends up in machine code, and of the variant."""
    digest = hashlib.sha256(f"{codegen.VARIANT} {sorted(llvm_features())}".encode())
    folder = Path(__file__).parent
    for pattern in _COMPILED:
        for path in sorted(folder.glob(pattern)):
            digest.update(path.read_bytes())
    digest.update(_CONSTANTS.read_bytes())
    return digest.hexdigest()[:16]


def kept_folder() -> Path:
    """Where the machine code of these sources is kept."""
    return Path(cast("Any", numba.config).CACHE_DIR)


def _choose_cache_dir() -> None:
    config = cast("Any", numba.config)
    base = config.CACHE_DIR or str(Path(__file__).parent / "__pycache__")
    config.CACHE_DIR = str(Path(base) / f"cpu-{source_hash()}")


# Must happen before the first function is decorated, which is when numba picks its folder.
_choose_cache_dir()


def helper(function: F) -> F:
    """A function that only kernels, entries and other helpers call.

    Its code becomes part of theirs: nothing of it is kept, and Python must not call it, because
    the wrappers for that would be a third of all compilation. numba compiles it once for each
    combination of constants that it is called with.
    """
    return cast("F", numba.njit(**_OPTIONS, **_WITHOUT_DOORS)(function))


def template(function: F) -> F:
    """A helper whose arguments may be operations: its code is copied into each caller's.

    Compiled by itself it would be a function named after the types of its arguments, and all
    operations have one name there: code that processes kept apart would be mixed up when loaded.
    """
    return cast("F", numba.njit(**_OPTIONS, inline="always")(function))


def entry(function: F) -> F:
    """A function of whole numbers that Python calls, and helpers too."""
    compiled = numba.njit(**_OPTIONS)(function)
    _keep(compiled, function)
    return cast("F", compiled)


class _LoadingCache(FunctionCache):
    """numba's cache, which loads without getting ready to compile.

    numba's own imports all that it can translate and compiles its memory management before it
    looks: a third of the start of a run that finds everything compiled. Our code needs neither;
    who has to compile gets ready then.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is in the cache for a signature; None for nothing, or where it cannot be read."""
        numbas = cast("Any", super())
        with suppress(OSError):
            return numbas._load_overload(sig, target_context)  # noqa: SLF001 - see the class
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Best effort: without it, such as on a full disk, the next start compiles again."""
        with suppress(OSError):
            cast("Any", super()).save_overload(sig, data)


def _keep(compiled: Any, function: Callable[..., Any]) -> None:
    """Let what is compiled be kept on disk, and be loaded from there."""
    compiled._cache = cast("Any", _LoadingCache)(function)  # noqa: SLF001 - no public way


class Kernel:
    """One kernel: compiled, or loaded from the cache, when its address is first asked for.

    What the op table points at takes (row address, ith, nth) and gives back a status, 0 for
    success. Pieces that a kernel calls by address, one for each type of weights, take other whole
    numbers; see kernels/traits.py.
    """

    _lock = threading.Lock()

    def __init__(self, function: Callable[..., int]) -> None:
        self.name = function.__name__
        self._function = function

    def address(self) -> int:
        """Address of the machine code; compiles once."""
        with self._lock:
            return int(self._compiled.address)

    @functools.cached_property
    def _compiled(self) -> Any:
        n_params = self._function.__code__.co_argcount
        signature = types.int64(*[types.int64] * n_params)
        compiled = cast("Any", CFunc)(
            self._function,
            (signature.args, signature.return_type),
            locals={},
            options={name: _OPTIONS[name] for name in ("error_model", "_nrt")},
        )
        _keep(compiled, self._function)
        compiled.compile()
        return compiled


def kernel(function: Callable[..., int]) -> Kernel:
    """Mark a function of whole numbers as a kernel."""
    return Kernel(function)


def compile_entry(function: Callable[..., Any], n_params: int) -> None:
    """Compile an entry, or load it from the cache."""
    cast("Any", function).compile((types.int64,) * n_params)
