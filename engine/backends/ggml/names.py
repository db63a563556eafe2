"""Names of a library's devices, families and memory beside those of the built-in backends.

A name that a built-in backend has too gets the prefix `ggml-`: ggml-CPU, its memory ggml-CPU and
ggml-CPU_REPACK, ggml-BLAS. Others stay as the library says: Vulkan0, CUDA0, RPC0.
"""

from __future__ import annotations

import re

PREFIX = "ggml-"
_BUILT_IN = re.compile(r"(CPU|BLAS|OpenCL)(?![A-Za-z])")


def own_name(name: str) -> str:
    """A library's name as it stands in plans, options and the trace."""
    return f"{PREFIX}{name}" if _BUILT_IN.match(name) else name
