"""One MUL_MAT in ggml's own graph and CPU backend, in the plain layout of weights."""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.types import TensorType
from tests.bench.llama_api import CPU_DEVICE, InitParams

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA_BYTES = 1 << 20
SET_N_THREADS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


class Products:
    """Times single products; `call` is one of `open_build`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._backend = call("ggml_backend_init_by_type", CPU_DEVICE, None)
        if not self._backend:
            raise RuntimeError("this build of ggml has no CPU backend that runs here")
        device = call("ggml_backend_get_device", self._backend)
        reg = call("ggml_backend_dev_backend_reg", device)
        address = call("ggml_backend_reg_get_proc_address", reg, b"ggml_backend_set_n_threads")
        self._set_n_threads = SET_N_THREADS(address)

    def median_seconds(self, kind: int, shape: list[int], *, n_threads: int, n_runs: int) -> float:
        """The median of so many runs; shape: inner dimension, rows, columns."""
        self._set_n_threads(self._backend, n_threads)
        context = self._call("ggml_init", InitParams(METADATA_BYTES, None, True))
        graph, buffer = self._graph(context, kind, shape)
        times = [self._seconds(graph) for _ in range(n_runs + 1)]
        self._call("ggml_backend_buffer_free", buffer)
        self._call("ggml_free", context)
        return statistics.median(times[1:])

    def _graph(self, context: Any, kind: int, shape: list[int]) -> tuple[Any, Any]:
        """A graph of one node, and the buffer that its tensors lie in."""
        inner, n_rows, n_columns = shape
        call = self._call
        weight = call("ggml_new_tensor_2d", context, kind, inner, n_rows)
        x = call("ggml_new_tensor_2d", context, int(TensorType.F32), inner, n_columns)
        node = call("ggml_mul_mat", context, weight, x)
        graph = call("ggml_new_graph", context)
        call("ggml_build_forward_expand", graph, node)
        buffer = call("ggml_backend_alloc_ctx_tensors", context, self._backend)
        values = np.random.default_rng(0).standard_normal(inner * n_columns).astype(np.float32)
        # Pages that nobody wrote to would all be the same zero page.
        zeros = np.zeros(TensorType(kind).row_bytes(inner) * n_rows, np.uint8)
        for tensor, data in ((weight, zeros), (x, values)):
            call("ggml_backend_tensor_set", tensor, data.ctypes.data, 0, data.nbytes)
        return graph, buffer

    def _seconds(self, graph: Any) -> float:
        start = time.perf_counter()
        status = self._call("ggml_backend_graph_compute", self._backend, graph)
        seconds = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"ggml could not compute a product ({status})")
        return seconds
