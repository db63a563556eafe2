"""Tensor -> ggml tensor: contexts, strides, sources, views.

Tensors and graphs are made by the library's functions, in contexts that allocate no data. What no
function sets is then written into the structure: strides, operation, parameters, sources. Shapes
and strides are in ggml's order on both sides.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from engine.backends.ggml.c_api import MAX_NAME, InitParams, TensorStruct
from engine.backends.ggml.op_params import pack
from engine.core.types import TensorType
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backends.ggml.base import Base
    from engine.core.tensor import Tensor

ROOM_BYTES = 4096
"""What a context needs beside its tensors and its graph."""


class Context:
    """A ggml context with room for `n_tensors`, and a graph of up to `n_nodes` (optional).

    It is freed with this object, or by `free`; its tensors end with it.
    """

    def __init__(self, base: Base, n_tensors: int, n_nodes: int = 0) -> None:
        api = base.api
        size = ROOM_BYTES + n_tensors * api.ggml_tensor_overhead()
        if n_nodes:
            size += api.ggml_graph_overhead_custom(n_nodes, False)
        address = api.ggml_init(InitParams(size, None, True))
        if address is None:
            raise DeviceError(
                f"The ggml library found no memory for {n_tensors:,} tensors.",
                hint="Close programs, or choose a smaller batch.",
            )
        self.base = base
        self.address: int = address
        self._finalizer = weakref.finalize(self, api.ggml_free, address)
        self._finalizer.atexit = False

    def new(self, tensor: Tensor) -> int:
        """A tensor of the same type, shape, strides and name, without an operation or a place."""
        at: int = self.base.api.ggml_new_tensor_4d(self.address, tensor.type, *tensor.ne)
        struct = TensorStruct.from_address(at)
        struct.nb[:] = tensor.nb
        struct.name = tensor.name.encode()[: MAX_NAME - 1]
        return at

    def window(self, buffer: int, address: int, n_bytes: int) -> int:
        """Bytes of a buffer as a tensor, to copy from or to."""
        at: int = self.base.api.ggml_new_tensor_4d(self.address, TensorType.I8, n_bytes, 1, 1, 1)
        put(self.base, at, buffer, address)
        return at

    def free(self) -> None:
        """End it now."""
        self._finalizer()


def set_op(base: Base, at: int, tensor: Tensor, sources: Sequence[int]) -> None:
    """Make the ggml tensor at `at` the result of the operation of `tensor`."""
    struct = TensorStruct.from_address(at)
    struct.op = base.numbers.ops[tensor.op]
    words = pack(tensor, base.numbers)
    struct.op_params[: len(words)] = words
    struct.src[: len(sources)] = sources
    struct.flags = int(tensor.flags)


def put(base: Base, at: int, buffer: int, address: int) -> None:
    """Place a tensor that is no view at an address in a buffer; DeviceError when that fails."""
    if base.api.ggml_backend_tensor_alloc(buffer, at, address):
        raise DeviceError("The device refused a tensor.", details=base.log.take())


def put_view(base: Base, at: int, view_src: int, view_offs: int) -> None:
    """Make a tensor a view of one that is placed."""
    struct = TensorStruct.from_address(at)
    struct.view_src, struct.view_offs = view_src, view_offs
    if base.api.ggml_backend_view_init(at):
        raise DeviceError("The device refused a view.", details=base.log.take())
