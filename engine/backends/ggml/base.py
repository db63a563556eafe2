"""libggml-base: found beside a backend library, opened, and checked before a tensor is written.

The backend library says which base it is bound to: its functions are taken through the backend's
own handle. Two installs can be in one process when their bases have different names, such as
libggml-base.so and libggml-base.so.0; with one name the system binds the second backend to the
first base, which is refused unless both files are the same, byte for byte.
"""

from __future__ import annotations

import atexit
import ctypes
import filecmp
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backends.ggml.c_api import (
    GLU_MAKERS,
    UNARY_MAKERS,
    CApi,
    InitParams,
    LogCallback,
    MissingFunctionsError,
    Object,
    TensorStruct,
    optional_function,
    text,
)
from engine.core.ops import GluOp, Op, UnaryOp
from engine.core.types import TensorType
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE_PATTERNS = ("libggml-base.so", "libggml-base.so.*", "libggml-base*.dylib", "ggml-base.dll")
KEPT_LOG_LINES = 200
SCRATCH_BYTES = 1 << 16
OBJECT_BYTES = 32
"""What ggml_tensor_overhead() counts beside the tensor itself: its entry in the context."""

LAST_OP = Op.GLU
"""The last entry of ggml's table of names, which says its own length nowhere."""
MOST_OPS = 512
ANOTHER_VERSION = "Use the libraries of a llama.cpp of 2026, or update Splitscope."


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that this version has for operations; what is missing it cannot compute."""

    ops: dict[Op, int]
    unary: dict[UnaryOp, int]
    glu: dict[GluOp, int]
    types: frozenset[TensorType]


class LogLines:
    """What libraries said, instead of standard error; any thread adds, nothing is printed."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LOG_LINES)
        self._lock = threading.Lock()
        self.callback = LogCallback(self._add)

    def _add(self, level: int, line: bytes | None, user_data: int | None) -> None:
        del level, user_data
        said = text(line).rstrip()
        if said:
            with self._lock:
                self._lines.append(said)

    def take(self) -> str:
        """All lines since the last call, as text."""
        with self._lock:
            said = "\n".join(self._lines)
            self._lines.clear()
        return said


@dataclass(frozen=True, eq=False)
class Base:
    """One libggml-base of this process.

    Any thread may use it: each call works on objects of its caller, and libggml-rpc sends the
    requests to a server one after another, from a thread of its own. `Questions` need `lock`.
    """

    path: str
    version: str
    api: CApi
    numbers: Numbers
    log: LogLines
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the library is asked what it can do, with tensors that stand for others."""


def base_of(backend: ctypes.CDLL, backend_path: Path) -> Base:
    """The base that a backend library is bound to.

    Raises: DeviceError when it lacks a function, has another layout, or is of another install.
    """
    try:
        path = _bound_to(backend)
    except AttributeError:
        raise DeviceError(
            f"{backend_path.name} is bound to no libggml-base.",
            "It has the functions of a backend, but not those that every backend needs.",
            "Put libggml-base of the same install into its folder.",
        ) from None
    beside = find_base(backend_path.parent)
    if path is not None and beside is not None:
        _refuse_other(Path(path), beside, backend_path)
    return _opened(path or str(beside or backend_path))


def find_base(folder: Path) -> Path | None:
    """The libggml-base in a folder; of several names for it the shortest."""
    found = [path for pattern in BASE_PATTERNS for path in sorted(folder.glob(pattern))]
    return found[0] if found else None


@cache
def open_beside(folder: Path) -> ctypes.CDLL | None:
    """The base in a folder, opened, so that backends there find it whatever their own paths say."""
    path = find_base(folder)
    return None if path is None else ctypes.CDLL(str(path))


class _SymbolInfo(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", Object), ("name", ctypes.c_char_p), ("address", Object),
    )  # fmt: skip


def _bound_to(backend: ctypes.CDLL) -> str | None:
    """The file that gives a backend its functions; None where the system does not say."""
    if sys.platform == "win32":
        return None
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (Object, ctypes.POINTER(_SymbolInfo))
    info = _SymbolInfo()
    found = dladdr(ctypes.cast(backend.ggml_backend_reg_name, Object), ctypes.byref(info))
    return text(info.file) if found else None


def _refuse_other(bound: Path, beside: Path, backend_path: Path) -> None:
    if bound.samefile(beside) or filecmp.cmp(bound, beside, shallow=False):
        return
    raise DeviceError(
        f"{backend_path.name} cannot be loaded beside the ggml libraries that are loaded.",
        f"Both need a {beside.name}, and a process has one file of that name. The two differ.",
        "Restart Splitscope and load this one only.",
        f"loaded: {bound}\nneeded: {beside}",
    )


@cache
def _opened(path: str) -> Base:
    """The base at `path`, checked, its log lines led to us; once for each in a process."""
    handle = ctypes.CDLL(path)
    try:
        api = CApi(handle)
    except MissingFunctionsError as error:
        raise DeviceError(
            f"{Path(path).name} is of a version that cannot be used.",
            f"It lacks {error.names[0]}" + (f" and {len(error.names) - 1} more functions." if
            len(error.names) > 1 else "."),
            ANOTHER_VERSION,
            str(error),
        ) from error  # fmt: skip
    log = LogLines()
    api.ggml_log_set(ctypes.cast(log.callback, Object), None)
    try:
        base = _checked(path, api, handle, log)
    except BaseException:
        # The library stays in the process, `log` does not.
        api.ggml_log_set(None, None)
        raise
    # A library that speaks while Python ends would call what is gone.
    atexit.register(api.ggml_log_set, None, None)
    return base


def _checked(path: str, api: CApi, handle: ctypes.CDLL, log: LogLines) -> Base:
    check_layout(api, Path(path).name)
    version = optional_function(handle, "ggml_version", ctypes.c_char_p, ())
    return Base(
        path=path,
        version="" if version is None else text(version()),
        api=api,
        numbers=_numbers(api, handle),
        log=log,
    )


# What this version's tensors look like.


def check_layout(api: CApi, name: str) -> None:
    """DeviceError unless tensors made by the library have the layout and parameters we write."""
    context = api.ggml_init(InitParams(SCRATCH_BYTES, None, True))
    try:
        wrong = [what for what, is_right in _layout_facts(api, context) if not is_right]
    finally:
        api.ggml_free(context)
    if wrong:
        raise DeviceError(
            f"{name} is of a version that cannot be used.",
            f"Its tensors are laid out otherwise than those of ggml.h that are known "
            f"({', '.join(wrong)}).",
            ANOTHER_VERSION,
        )


def _layout_facts(api: CApi, context: int) -> Iterator[tuple[str, bool]]:
    """What is looked at, and whether it is as expected."""
    size = api.ggml_tensor_overhead() - OBJECT_BYTES
    yield "size", size == ctypes.sizeof(TensorStruct)
    if size < ctypes.sizeof(TensorStruct):
        return
    x_at = api.ggml_new_tensor_4d(context, TensorType.F16, 8, 4, 6, 5)
    api.ggml_set_name(x_at, b"some name")
    api.ggml_set_output(x_at)
    x = TensorStruct.from_address(x_at)
    yield "type", x.type == TensorType.F16
    yield "ne, nb", (*x.ne, *x.nb) == (8, 4, 6, 5, 2, 16, 64, 384)
    yield "flags", x.flags == 2
    yield "name", x.name == b"some name"
    yield from _view_facts(api, context, x_at)
    yield from _place_facts(api, x_at, x)
    yield from _param_facts(api, context)


def _view_facts(api: CApi, context: int, x_at: int) -> Iterator[tuple[str, bool]]:
    view_at = api.ggml_view_4d(context, x_at, 2, 3, 2, 1, 16, 64, 384, 32)
    view = TensorStruct.from_address(view_at)
    yield "view_src", view.view_src == x_at
    yield "view_offs", view.view_offs == 32
    yield "src", view.src[0] == x_at
    yield "op", api.ggml_op_name(view.op) == b"VIEW"
    yield "op_params", tuple(view.op_params[:3]) == (32, 0, 0)


def _place_facts(api: CApi, x_at: int, x: TensorStruct) -> Iterator[tuple[str, bool]]:
    """Whether `buffer` and `data` are where the library writes them."""
    memory = (ctypes.c_uint8 * 8192)()
    start = -(-ctypes.addressof(memory) // 64) * 64
    buffer = api.ggml_backend_cpu_buffer_from_ptr(start, 4096)
    yield "a buffer's base", api.ggml_backend_buffer_get_base(buffer) == start
    api.ggml_backend_tensor_alloc(buffer, x_at, start + 64)
    yield "buffer", x.buffer == buffer
    yield "data", x.data == start + 64
    api.ggml_backend_buffer_free(buffer)


def _param_facts(api: CApi, context: int) -> Iterator[tuple[str, bool]]:
    """Whether an operation's sources and parameters stand where we write them."""
    x = api.ggml_new_tensor_4d(context, TensorType.F32, 8, 4, 6, 1)
    positions = api.ggml_new_tensor_4d(context, TensorType.I32, 6, 1, 1, 1)
    rope = TensorStruct.from_address(
        api.ggml_rope_ext(context, x, positions, None, 6, 2, 77, 0.5, 0.25, 0.0, 1.0, 2.0, 4.0)
    )
    yield "the parameters of ROPE", tuple(rope.op_params[:5]) == (0, 6, 2, 0, 77)
    yield "the sources of ROPE", tuple(rope.src[:3]) == (x, positions, None)
    soft_max = TensorStruct.from_address(api.ggml_soft_max_ext(context, x, None, 0.5, 0.0))
    yield "the parameters of SOFT_MAX", soft_max.op_params[0] == 0x3F000000


# What this version calls operations.


def _numbers(api: CApi, handle: ctypes.CDLL) -> Numbers:
    context = api.ggml_init(InitParams(SCRATCH_BYTES, None, True))
    try:
        x = api.ggml_new_tensor_4d(context, TensorType.F32, 32, 1, 1, 1)
        return Numbers(
            ops=_op_numbers(api),
            unary=_unary_numbers(handle, context, x),
            glu=_glu_numbers(handle, context, x),
            types=frozenset(t for t in TensorType if text(api.ggml_type_name(t)) == t.label),
        )
    finally:
        api.ggml_free(context)


def _op_numbers(api: CApi) -> dict[Op, int]:
    known = {op.value: op for op in Op}
    found: dict[Op, int] = {}
    for number in range(MOST_OPS):
        op = known.get(text(api.ggml_op_name(number)))
        if op is not None:
            found[op] = number
        if op is LAST_OP:
            break
    return found


def _unary_numbers(handle: ctypes.CDLL, context: int, x: int) -> dict[UnaryOp, int]:
    found = {}
    for kind in UnaryOp:
        make = optional_function(handle, UNARY_MAKERS[kind], Object, (Object, Object))
        if make is not None:
            found[kind] = _first_param(make(context, x))
    return found


def _glu_numbers(handle: ctypes.CDLL, context: int, x: int) -> dict[GluOp, int]:
    found = {}
    for kind in GluOp:
        name, kinds = GLU_MAKERS[kind]
        make: Callable[..., Any] | None = optional_function(
            handle, name, Object, (Object, Object, Object, *kinds)
        )
        if make is not None:
            found[kind] = _first_param(make(context, x, x, *(1.0 for _ in kinds)))
    return found


def _first_param(tensor: int) -> int:
    return int(TensorStruct.from_address(tensor).op_params[0])
