"""GgmlKind: libggml-<name>[-variant].so and its like, for the loader. Source: SCHED.md 2.3-2.6."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.backend.apart import probe_apart
from engine.backend.library_kind import LibraryKind
from engine.backends.ggml.base import find_base
from engine.backends.ggml.library import (
    API_VERSION,
    INIT_SYMBOL,
    SCORE_SYMBOL,
    open_library,
    read_api_version,
    refusal,
)
from engine.backends.ggml.reg import GgmlReg
from engine.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.core.load_report import Probe

PROBE = "engine.backends.ggml.probe"

LOAD_ORDER = (
    "blas", "zendnn", "cann", "cuda", "hip", "metal", "rpc", "sycl", "vulkan", "virtgpu", "opencl",
    "hexagon", "musa", "openvino", "cpu",
)  # fmt: skip
"""The order in which ggml looks for its backends; the CPU is last."""

NO_BACKEND = "base"
"""libggml-base is what all backends need, and none itself."""


class GgmlKind(LibraryKind):
    """Libraries of a llama.cpp install."""

    name = "ggml"
    load_order = LOAD_ORDER
    init_symbol = INIT_SYMBOL
    score_symbol = SCORE_SYMBOL
    api_version = API_VERSION

    def __init__(self, platform: str = sys.platform) -> None:
        is_windows = platform == "win32"
        self._prefix = "ggml-" if is_windows else "libggml-"
        self._base_suffix = {"win32": ".dll", "darwin": ".dylib"}.get(platform, ".so")
        # On macOS variants end in .so, and the base files of a plain build in .dylib.
        self.suffixes = tuple(dict.fromkeys((".dll" if is_windows else ".so", self._base_suffix)))

    def backend_of(self, file_name: str) -> tuple[str, str] | None:
        """("cpu", "haswell") of libggml-cpu-haswell.so; ("cpu", "") of libggml-cpu.so."""
        ending = next((s for s in self.suffixes if file_name.endswith(s)), None)
        if ending is None or not file_name.startswith(self._prefix):
            return None
        stem = file_name[len(self._prefix) : -len(ending)]
        backend, _, variant = stem.partition("-")
        return None if backend in ("", NO_BACKEND) else (backend, variant)

    def base_file(self, backend: str) -> str:
        """The file without a variant."""
        return f"{self._prefix}{backend}{self._base_suffix}"

    def companions(self, path: Path) -> tuple[Path, ...]:
        """The libggml-base beside it, which is opened first."""
        base = find_base(path.absolute().parent)
        return () if base is None else (base,)

    def probe(self, path: Path) -> Probe:
        """What it is, found out in a process of its own."""
        return probe_apart(PROBE, path)

    def open(self, path: Path) -> GgmlReg:
        """Its family, with its devices; the library stays in the process from then on.

        Raises: DeviceError with the text of the system's loader, or what is wrong with its version.
        """
        try:
            library = open_library(path.absolute())
        except OSError as error:
            raise DeviceError(
                f"{path.name} cannot be opened.",
                "The system's loader refused it.",
                "Keep all libraries of an install in one folder.",
                str(error),
            ) from error
        base = library.base()
        handle = library.init()
        if handle is None:
            raise refusal(base, f"{path.name} registers nothing.", f"{INIT_SYMBOL} gave NULL.")
        if read_api_version(handle) != API_VERSION:
            raise DeviceError(
                f"{path.name} cannot be used.",
                f"It was made for version {read_api_version(handle)} of ggml's contract, "
                f"this is {API_VERSION}.",
                "Use the libraries of a llama.cpp of 2026.",
            )
        return GgmlReg(base, handle, library.path)
