"""llama.cpp through its public C interface, without the exact layout of its parameter structs.

Structs that are passed by value are longer than 16 bytes, so they lie on the stack, and a callee
reads no more of them than it knows. An oversized struct that llama.cpp filled in itself is
therefore safe to hand back; only its first fields, which have not moved in years, are touched.
Source: llama.h, ggml.h, ggml-backend.h.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
STRUCT_BYTES = 1024
EXTENSION = "xllamacpp.abi3.so"
"""One library with everything, which is also a Python module."""
PARTS = ("libggml-base.*so*", "libggml.*so*", "libllama.*so*")


class ModelParams(ctypes.Structure):
    """llama_model_params, with room to spare."""

    _fields_ = (("rest", ctypes.c_uint8 * STRUCT_BYTES),)


class ContextParams(ctypes.Structure):
    """llama_context_params, with room to spare."""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * (STRUCT_BYTES - 12)),
    )


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", _INT), ("token", _POINTER), ("embd", _POINTER), ("pos", _POINTER),
        ("n_seq_id", _POINTER), ("seq_id", _POINTER), ("logits", _POINTER),
    )  # fmt: skip


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_backend_init": (None, []),
    "llama_print_system_info": (_TEXT, []),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (_POINTER, [_TEXT, ModelParams]),
    "llama_init_from_model": (_POINTER, [_POINTER, ContextParams]),
    "llama_set_n_threads": (None, [_POINTER, _INT, _INT]),
    "llama_batch_get_one": (Batch, [_POINTER, _INT]),
    "llama_decode": (_INT, [_POINTER, Batch]),
    "llama_get_logits_ith": (_POINTER, [_POINTER, _INT]),
    "llama_get_memory": (_POINTER, [_POINTER]),
    "llama_memory_clear": (None, [_POINTER, ctypes.c_bool]),
    "ggml_version": (_TEXT, []),
    "ggml_commit": (_TEXT, []),
    "ggml_backend_load_all_from_path": (None, [_TEXT]),
}


def open_build(folder: Path) -> Callable[..., Any]:
    """A function `call(name, *arguments)` of the build in a folder, its CPU backend loaded."""
    libraries = [ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL) for path in libraries_of(folder)]

    def call(name: str, *arguments: Any) -> Any:
        result, kinds = _SIGNATURES[name]
        function = next(getattr(lib, name) for lib in libraries if hasattr(lib, name))
        function.restype, function.argtypes = result, kinds
        return function(*arguments)

    if len(libraries) > 1:
        call("ggml_backend_load_all_from_path", str(folder).encode())
    call("llama_backend_init")
    return call


def libraries_of(folder: Path) -> tuple[Path, ...]:
    """The libraries to load, each before those that need it; FileNotFoundError when one is missing.

    CPU variants are not among them: ggml loads the one that suits the processor.
    """
    whole = folder / EXTENSION
    if whole.is_file():
        return (whole,)
    found = [sorted(folder.glob(pattern))[:1] for pattern in PARTS]
    if not all(found):
        raise FileNotFoundError(f"there is no whole llama.cpp in {folder}")
    return tuple(path for paths in found for path in paths)


class Llama:
    """A model in llama.cpp, on the CPU."""

    def __init__(self, call: Callable[..., Any], path: Path, *, n_threads: int, n_ctx: int) -> None:
        self._call = call
        model = call(
            "llama_model_load_from_file", str(path).encode(), call("llama_model_default_params")
        )
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path.name}")
        params = call("llama_context_default_params")
        params.n_ctx = n_ctx
        self._context = call("llama_init_from_model", model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context for {path.name}")
        self._memory = call("llama_get_memory", self._context)
        call("llama_set_n_threads", self._context, n_threads, n_threads)

    def clear(self) -> None:
        """Forget every token."""
        self._call("llama_memory_clear", self._memory, True)

    def decode(self, tokens: list[int]) -> None:
        """Compute tokens that continue what came before, and read the logits of the last."""
        array = (_INT * len(tokens))(*tokens)
        batch = self._call("llama_batch_get_one", ctypes.addressof(array), len(tokens))
        status = self._call("llama_decode", self._context, batch)
        if status != 0 or not self._call("llama_get_logits_ith", self._context, -1):
            raise RuntimeError(f"llama.cpp could not decode {len(tokens)} tokens ({status})")
