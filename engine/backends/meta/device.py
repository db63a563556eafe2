"""join_devices(): several devices as one, which computes by having each do its share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.backend.interface import BackendReg, BufferType, Device
from engine.backends.meta.backend import MetaBackend
from engine.backends.meta.buffer import MetaBufferType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.core.devices import DeviceFacts
    from engine.core.shards import Shard
    from engine.core.tensor import Tensor


def join_devices(
    facts: DeviceFacts,
    members: Sequence[Device],
    shards: Mapping[Tensor, Shard],
    *,
    exchange_bytes: int = 0,
) -> MetaDevice:
    """The device with these facts that `members` make.

    `shards` are those of the weights and caches that are divided, in the graphs it is to compute.
    `exchange_bytes` of each member's memory are for exchanges from the start; more is got when it
    is needed.
    """
    return MetaReg(facts, members, shards, exchange_bytes).device


class MetaDevice(Device):
    """Several devices as one. Its memory is theirs: each tensor whole on all, or in parts."""

    def __init__(
        self,
        reg: BackendReg,
        facts: DeviceFacts,
        members: Sequence[Device],
        shards: Mapping[Tensor, Shard],
        exchange_bytes: int,
    ) -> None:
        self.reg = reg
        self.members = tuple(members)
        self.exchange_bytes = exchange_bytes
        self._facts = facts
        self._shards = shards
        self._buffer_type = MetaBufferType(facts.buft, members, shards)

    @property
    def facts(self) -> DeviceFacts:
        """Its facts with the free memory of this moment."""
        free = sum(member.facts.memory_free for member in self.members)
        return replace(self._facts, memory_free=free)

    def init_backend(self) -> MetaBackend:
        """A stream on every member."""
        return MetaBackend(self, self._shards)

    def buffer_type(self) -> BufferType:
        """The joined memory."""
        return self._buffer_type

    def host_buffer_type(self) -> BufferType | None:
        """Pinned memory, where all members pin the same."""
        if self._facts.host_buft is None:
            return None
        return self.members[0].host_buffer_type()


class MetaReg(BackendReg):
    """The family of one joined device."""

    name = "Meta"

    def __init__(
        self,
        facts: DeviceFacts,
        members: Sequence[Device],
        shards: Mapping[Tensor, Shard],
        exchange_bytes: int,
    ) -> None:
        self.device = MetaDevice(self, facts, members, shards, exchange_bytes)

    def devices(self) -> tuple[Device, ...]:
        """The joined device."""
        return (self.device,)

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """`ggml_backend_set_n_threads`, which tells every member."""
        return MetaBackend.set_threads if name == "ggml_backend_set_n_threads" else None
