"""GgmlReg: a family of devices that a library registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.backend.interface import BackendReg
from engine.backends.ggml.backend import GgmlBackend
from engine.backends.ggml.c_api import SetThreads, text
from engine.backends.ggml.device import GgmlDevice, read_features
from engine.backends.ggml.library import proc_address, read_api_version
from engine.backends.ggml.names import own_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.backend.interface import Backend
    from engine.backends.ggml.base import Base


class GgmlReg(BackendReg):
    """A family. `handle` is its address in the library at `path`; its version stands there.

    Names that the built-in backends have are prefixed, see names.py. `endpoint` is the server that
    its devices are behind, "" for devices of this computer.
    """

    def __init__(self, base: Base, handle: int, path: Path, *, endpoint: str = "") -> None:
        api = base.api
        self.base, self.handle, self.path, self.endpoint = base, handle, path, endpoint
        self.api_version = read_api_version(handle)
        self.name = own_name(text(api.ggml_backend_reg_name(handle)))
        self._devices = tuple(
            GgmlDevice(self, base, api.ggml_backend_reg_dev_get(handle, i))
            for i in range(api.ggml_backend_reg_dev_count(handle))
        )

    def devices(self) -> tuple[GgmlDevice, ...]:
        """Its devices, in the library's order."""
        return self._devices

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """`ggml_backend_set_n_threads` and `ggml_backend_get_features`, where the library has them.

        Others have C's arguments, which nobody here could give.
        """
        if name == "ggml_backend_set_n_threads":
            return self._set_n_threads()
        if name == "ggml_backend_get_features":
            return lambda: dict(read_features(self.base, self.handle))
        return None

    def _set_n_threads(self) -> Callable[[Backend, int], None] | None:
        function = proc_address(self.base, self.handle, "ggml_backend_set_n_threads", SetThreads)
        if function is None:
            return None

        def set_n_threads(backend: Backend, n_threads: int) -> None:
            assert isinstance(backend, GgmlBackend), backend
            function(backend.handle, n_threads)

        return set_n_threads
