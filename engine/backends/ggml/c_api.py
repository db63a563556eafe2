"""The C functions and structures that are used, as tables. Source: ggml.h, ggml-backend.h.

    api = CApi(library)
    api.ggml_backend_reg_dev_count(reg)

Objects of ggml (backends, buffers, tensors) are addresses, that is ints; None is NULL.
"""

from __future__ import annotations

import ctypes
from typing import Any

MAX_DIMS = 4
MAX_SRC = 10
MAX_NAME = 64
N_OP_PARAMS = 16
NO_LIMIT = ctypes.c_size_t(-1).value
"""SIZE_MAX: a buffer may be of any size."""

STATUS_SUCCESS, STATUS_ABORTED = 0, 1
USAGES = {"any": 0, "weights": 1, "compute": 2}

Object = ctypes.c_void_p
"""Any pointer; a function's result of this kind is an int, or None for NULL."""
_Text, _Int, _Size, _Bool = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_bool
_Long, _Float, _Byte = ctypes.c_int64, ctypes.c_float, ctypes.c_uint8


class InitParams(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (("mem_size", _Size), ("mem_buffer", Object), ("no_alloc", _Bool))


class DeviceCapsStruct(ctypes.Structure):
    """ggml_backend_dev_caps."""

    _fields_ = (
        ("asynchronous", _Bool), ("host_buffer", _Bool), ("buffer_from_host_ptr", _Bool),
        ("events", _Bool), ("mmap_support", _Bool),
    )  # fmt: skip


class DeviceProps(ctypes.Structure):
    """ggml_backend_dev_props.

    The library clears as many bytes as its own version of the structure has, which may be more.
    """

    _fields_ = (
        ("name", _Text), ("description", _Text), ("memory_free", _Size), ("memory_total", _Size),
        ("type", _Int), ("device_id", _Text), ("caps", DeviceCapsStruct), ("room", _Byte * 256),
    )  # fmt: skip


class Feature(ctypes.Structure):
    """ggml_backend_feature; an array of them ends with one without a name."""

    _fields_ = (("name", _Text), ("value", _Text))


class TensorStruct(ctypes.Structure):
    """ggml_tensor. No function sets `op`, `op_params`, `src` and strides, so they are written here.

    `base.py` compares this layout with tensors that the library made, before anything is written.
    """

    _fields_ = (
        ("type", _Int),
        ("buffer", Object),
        ("ne", _Long * MAX_DIMS),
        ("nb", _Size * MAX_DIMS),
        ("op", _Int),
        ("op_params", ctypes.c_int32 * N_OP_PARAMS),
        ("flags", ctypes.c_int32),
        ("src", Object * MAX_SRC),
        ("view_src", Object),
        ("view_offs", _Size),
        ("data", Object),
        ("name", ctypes.c_char * MAX_NAME),
        ("extra", Object),
        ("padding", ctypes.c_char * 8),
    )


LogCallback = ctypes.CFUNCTYPE(None, _Int, _Text, Object)
InitFunction = ctypes.CFUNCTYPE(Object)
ScoreFunction = ctypes.CFUNCTYPE(_Int)
SetThreads = ctypes.CFUNCTYPE(None, Object, _Int)
SetAbortCallback = ctypes.CFUNCTYPE(None, Object, Object, Object)
GetFeatures = ctypes.CFUNCTYPE(ctypes.POINTER(Feature), Object)
GetExtraBufts = ctypes.CFUNCTYPE(ctypes.POINTER(Object), Object)
AddServer = ctypes.CFUNCTYPE(Object, _Text)

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    # Contexts, tensors, graphs.
    "ggml_init": (Object, (InitParams,)),
    "ggml_free": (None, (Object,)),
    "ggml_log_set": (None, (Object, Object)),
    "ggml_tensor_overhead": (_Size, ()),
    "ggml_graph_overhead_custom": (_Size, (_Size, _Bool)),
    "ggml_new_tensor_4d": (Object, (Object, _Int, _Long, _Long, _Long, _Long)),
    "ggml_new_graph_custom": (Object, (Object, _Size, _Bool)),
    "ggml_build_forward_expand": (None, (Object, Object)),
    "ggml_op_name": (_Text, (_Int,)),
    "ggml_type_name": (_Text, (_Int,)),
    # What the layout is checked with.
    "ggml_set_name": (Object, (Object, _Text)),
    "ggml_set_output": (None, (Object,)),
    "ggml_view_4d": (Object, (Object, Object, *(_Long,) * 4, *(_Size,) * 3, _Size)),
    "ggml_soft_max_ext": (Object, (Object, Object, Object, _Float, _Float)),
    "ggml_rope_ext": (Object, (*(Object,) * 4, *(_Int,) * 3, *(_Float,) * 6)),
    # Families and devices.
    "ggml_backend_reg_name": (_Text, (Object,)),
    "ggml_backend_reg_dev_count": (_Size, (Object,)),
    "ggml_backend_reg_dev_get": (Object, (Object, _Size)),
    "ggml_backend_reg_get_proc_address": (Object, (Object, _Text)),
    "ggml_backend_dev_get_props": (None, (Object, ctypes.POINTER(DeviceProps))),
    "ggml_backend_dev_memory": (
        None, (Object, ctypes.POINTER(_Size), ctypes.POINTER(_Size)),
    ),
    "ggml_backend_dev_name": (_Text, (Object,)),
    "ggml_backend_dev_backend_reg": (Object, (Object,)),
    "ggml_backend_dev_init": (Object, (Object, _Text)),
    "ggml_backend_dev_buffer_type": (Object, (Object,)),
    "ggml_backend_dev_host_buffer_type": (Object, (Object,)),
    "ggml_backend_dev_buffer_from_host_ptr": (Object, (Object, Object, _Size, _Size)),
    "ggml_backend_dev_supports_op": (_Bool, (Object, Object)),
    "ggml_backend_dev_supports_buft": (_Bool, (Object, Object)),
    "ggml_backend_dev_offload_op": (_Bool, (Object, Object)),
    # Buffer types and buffers.
    "ggml_backend_buft_name": (_Text, (Object,)),
    "ggml_backend_buft_alloc_buffer": (Object, (Object, _Size)),
    "ggml_backend_buft_get_alignment": (_Size, (Object,)),
    "ggml_backend_buft_get_max_size": (_Size, (Object,)),
    "ggml_backend_buft_get_alloc_size": (_Size, (Object, Object)),
    "ggml_backend_buft_is_host": (_Bool, (Object,)),
    "ggml_backend_cpu_buffer_type": (Object, ()),
    "ggml_backend_cpu_buffer_from_ptr": (Object, (Object, _Size)),
    "ggml_backend_buffer_free": (None, (Object,)),
    "ggml_backend_buffer_get_base": (Object, (Object,)),
    "ggml_backend_buffer_set_usage": (None, (Object, _Int)),
    "ggml_backend_buffer_clear": (None, (Object, _Byte)),
    "ggml_backend_tensor_alloc": (_Int, (Object, Object, Object)),
    "ggml_backend_view_init": (_Int, (Object,)),
    "ggml_backend_tensor_set": (None, (Object, Object, _Size, _Size)),
    "ggml_backend_tensor_get": (None, (Object, Object, _Size, _Size)),
    "ggml_backend_tensor_copy": (None, (Object, Object)),
    # Streams and events.
    "ggml_backend_free": (None, (Object,)),
    "ggml_backend_graph_compute": (_Int, (Object, Object)),
    "ggml_backend_graph_compute_async": (_Int, (Object, Object)),
    "ggml_backend_synchronize": (None, (Object,)),
    "ggml_backend_tensor_set_async": (None, (Object, Object, Object, _Size, _Size)),
    "ggml_backend_tensor_get_async": (None, (Object, Object, Object, _Size, _Size)),
    "ggml_backend_tensor_copy_async": (None, (Object, Object, Object, Object)),
    "ggml_backend_event_new": (Object, (Object,)),
    "ggml_backend_event_free": (None, (Object,)),
    "ggml_backend_event_record": (None, (Object, Object)),
    "ggml_backend_event_synchronize": (None, (Object,)),
    "ggml_backend_event_wait": (None, (Object, Object)),
}  # fmt: skip
"""Result and arguments of every function that libggml-base must have."""

UNARY_MAKERS = {
    "SILU": "ggml_silu",
    "GELU": "ggml_gelu",
    "TANH": "ggml_tanh",
    "SIGMOID": "ggml_sigmoid",
    "SOFTPLUS": "ggml_softplus",
}
"""Functions (context, tensor) that make a UNARY; a version that lacks one lacks the operation."""

GLU_MAKERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "SWIGLU": ("ggml_swiglu_split", ()),
    "GEGLU": ("ggml_geglu_split", ()),
    "SWIGLU_OAI": ("ggml_swiglu_oai", (_Float, _Float)),
}
"""Functions (context, gate, up, numbers...) that make a GLU, and what their numbers are."""


class MissingFunctionsError(Exception):
    """Names of functions that a library lacks."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class CApi:
    """The functions of one libggml-base, each an attribute by its full name."""

    def __init__(self, handle: ctypes.CDLL) -> None:
        missing = tuple(name for name in FUNCTIONS if not hasattr(handle, name))
        if missing:
            raise MissingFunctionsError(missing)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        # For type checkers: every function is an attribute of its own.
        raise AttributeError(name)


def optional_function(
    handle: ctypes.CDLL, name: str, result: Any, arguments: tuple[Any, ...]
) -> Any | None:
    """A function that a library may lack; None when it does."""
    function = getattr(handle, name, None)
    if function is not None:
        function.restype, function.argtypes = result, arguments
    return function


def text(raw: bytes | None) -> str:
    """What C gives as text; "" for NULL."""
    return "" if raw is None else raw.decode("utf-8", errors="replace")
