"""What a device can do, asked of its library with tensors that have no data.

Same question, same answer: each is asked once, by what a kernel could look at (operation,
parameters, types, shapes, strides, and the memory that sources lie in). Any thread may ask.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from engine.backends.ggml.c_api import TensorStruct
from engine.backends.ggml.tensors import Context, set_op
from engine.core.devices import MAPPED
from engine.core.ops import EMPTY_OPS, GluParams, UnaryParams

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from engine.backends.ggml.base import Base
    from engine.core.devices import BufferTypeFacts
    from engine.core.tensor import Tensor

MOST_ANSWERS = 1 << 16
"""Answers that are kept, which many shapes of batches need; then it is asked anew."""


class Questions:
    """Questions about operations, put to one device or one kind of memory of a library.

    It knows the library's kinds of memory by the names that they have here.
    """

    def __init__(self, base: Base) -> None:
        self._base = base
        self._bufts: dict[str, int] = {}
        self._answers: dict[tuple[str, Hashable], Any] = {}
        self._empty_buffers: dict[int, int] = {}
        weakref.finalize(self, _free_all, base, self._empty_buffers).atexit = False

    def knows(self, tensor: Tensor) -> bool:
        """Whether this version of ggml has the operation and the types."""
        numbers, params = self._base.numbers, tensor.params
        if tensor.op not in numbers.ops or tensor.type not in numbers.types:
            return False
        if isinstance(params, UnaryParams) and params.kind not in numbers.unary:
            return False
        if isinstance(params, GluParams) and params.kind not in numbers.glu:
            return False
        return all(source.type in numbers.types for source in tensor.src)

    def add_memory(self, name: str, buft: int) -> None:
        """Tell of a kind of memory that is called `name` here."""
        self._bufts[name] = buft

    def alloc_bytes(self, buft: int, tensor: Tensor) -> int:
        """Bytes that a tensor takes in memory of a kind."""
        if not self.knows(tensor):
            return tensor.n_bytes
        measure = self._base.api.ggml_backend_buft_get_alloc_size
        return int(self.ask(f"alloc_size {buft}", tensor, lambda at: measure(buft, at)))

    def ask(self, what: str, tensor: Tensor, function: Callable[[int], Any]) -> Any:
        """What `function` says of a ggml tensor like `tensor`; `what` tells questions apart."""
        key = (what, _signature(tensor))
        answer = self._answers.get(key)
        if answer is None:
            with self._base.lock:
                context = Context(self._base, 1 + len(tensor.src))
                answer = function(self._likeness(context, tensor))
                context.free()
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def _likeness(self, context: Context, tensor: Tensor) -> int:
        at = self._new(context, tensor)
        sources = [at if s is tensor else self._new(context, s) for s in tensor.src]
        set_op(self._base, at, tensor, sources)
        return at

    def _new(self, context: Context, tensor: Tensor) -> int:
        """A tensor that says which kind of memory it is in, through an empty buffer of it."""
        at = context.new(tensor)
        buft = None if tensor.home is None else self.buft_of(tensor.home.buft)
        if buft is not None:
            TensorStruct.from_address(at).buffer = self._empty_buffer(buft)
        return at

    def buft_of(self, facts: BufferTypeFacts) -> int | None:
        """The library's kind of memory, which is its CPU's for all of the host; None for others."""
        own = self._bufts.get(facts.name.removesuffix(MAPPED))
        if own is not None:
            return own
        cpu: int = self._base.api.ggml_backend_cpu_buffer_type()
        return cpu if facts.is_host else None

    def is_own(self, facts: BufferTypeFacts) -> bool:
        """Whether the memory is one of the library's kinds."""
        return facts.name.removesuffix(MAPPED) in self._bufts

    def _empty_buffer(self, buft: int) -> int:
        known = self._empty_buffers.get(buft)
        if known is None:
            known = self._empty_buffers[buft] = self._base.api.ggml_backend_buft_alloc_buffer(
                buft, 0
            )
        return known


class LibraryRules:
    """A device's predicates. With `only_own_memory` it works in no memory but that of its own."""

    def __init__(
        self, base: Base, device: int, questions: Questions, *, only_own_memory: bool = False
    ) -> None:
        self._api = base.api
        self._device = device
        self._questions = questions
        self._only_own_memory = only_own_memory
        self._bufts: dict[BufferTypeFacts, bool] = {}

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether the library has a kernel; NONE and view operations compute nothing."""
        if tensor.op in EMPTY_OPS:
            return True
        return self._ask("supports_op", tensor, self._api.ggml_backend_dev_supports_op)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether kernels read and write tensors there directly."""
        known = self._bufts.get(buft)
        if known is None:
            known = self._bufts[buft] = self._supports_buft(buft)
        return known

    def _supports_buft(self, buft: BufferTypeFacts) -> bool:
        if self._only_own_memory and not self._questions.is_own(buft):
            return False
        handle = self._questions.buft_of(buft)
        if handle is None:
            return False
        return bool(self._api.ggml_backend_dev_supports_buft(self._device, handle))

    def offload_op(self, tensor: Tensor) -> bool:
        """Whether the device wants it though its weights must be copied in."""
        return self._ask("offload_op", tensor, self._api.ggml_backend_dev_offload_op)

    def _ask(self, what: str, tensor: Tensor, function: Callable[[int, int], bool]) -> bool:
        if not self._questions.knows(tensor):
            return False
        return bool(self._questions.ask(what, tensor, lambda at: function(self._device, at)))


def _free_all(base: Base, buffers: dict[int, int]) -> None:
    for buffer in buffers.values():
        base.api.ggml_backend_buffer_free(buffer)


def _signature(tensor: Tensor) -> Hashable:
    """All that an answer may depend on."""
    return (
        tensor.op, tensor.params, tensor.flags, _layout(tensor),
        tuple(_layout(source) for source in tensor.src),
    )  # fmt: skip


def _layout(tensor: Tensor) -> Hashable:
    home = tensor.home
    return (tensor.type, tensor.ne, tensor.nb, None if home is None else home.buft.name)
