"""Several devices as one, which is what `-sm tensor` plans for.

Every layer is on all members, a share of each tensor on each (shards.py). Source: SCHED.md 4 and
6, ggml-backend-meta.cpp. Memory counts every tensor once, against what all members have; tensors
that each of them holds whole, such as norms, and results take more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import BufferTypeFacts, DeviceCaps, DeviceFacts, DeviceType
from engine.core.options import FlashAttn, SplitMode
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import DeviceRules
    from engine.core.options import Options
    from engine.core.tensor import Tensor

META = "Meta()"
"""Name of the device and of its memory: llama.cpp prints no members there, only in the stream's."""

MOST_MEMBERS = 16
"""GGML_BACKEND_META_MAX_DEVICES."""

NEVER_SHARED = frozenset({
    "bailingmoe3", "bitnet", "deepseek2", "deepseek32", "dots3note", "falcon-h1", "gemma3n",
    "glm-dsa", "glm5-next", "granitehybrid", "grok", "hy_v4", "jamba", "kimi-k3", "kimi-linear",
    "mamba", "mamba2", "minicpm3", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "mpt",
    "nemotron_h", "nemotron_h_moe", "olmo2", "olmoe", "plamo2", "qwen3tts", "qwen4exp", "t5",
})  # fmt: skip
"""Architectures that llama.cpp refuses (llm_arch_supports_sm_tensor)."""


@dataclass(frozen=True, slots=True)
class MetaRules:
    """All members must run an operation; only memory that they share is read; nothing is wanted."""

    members: tuple[DeviceRules, ...]

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether every member has a kernel."""
        return all(rules.supports_op(tensor) for rules in self.members)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether it is the joined memory: not even a member's own."""
        return buft.name == META

    def offload_op(self, tensor: Tensor) -> bool:
        """Never: ggml's has no such function."""
        del tensor
        return False


def join(members: Sequence[DeviceFacts]) -> DeviceFacts:
    """The one device that `members`, at least one, make."""
    names = [member.name for member in members]
    pinned = {member.host_buft for member in members}
    return DeviceFacts(
        name=META,
        description=f"{', '.join(names)} as one device; memory counts each tensor once",
        type=DeviceType.META,
        reg="Meta",
        buft=_joined_memory([member.buft for member in members]),
        rules=MetaRules(tuple(member.rules for member in members)),
        memory_free=sum(member.memory_free for member in members),
        memory_total=sum(member.memory_total for member in members),
        caps=DeviceCaps(
            asynchronous=all(member.caps.asynchronous for member in members),
            mmap_support=all(member.caps.mmap_support for member in members),
        ),
        host_buft=pinned.pop() if len(pinned) == 1 else None,
        stream=f"Meta({','.join(names)})",
        members=tuple(members),
    )


def _joined_memory(bufts: Sequence[BufferTypeFacts]) -> BufferTypeFacts:
    """Memory that is as strict as the strictest member's."""
    limits = [buft.max_bytes for buft in bufts if buft.max_bytes is not None]
    return BufferTypeFacts(
        META,
        alignment=max(buft.alignment for buft in bufts),
        max_bytes=min(limits, default=None),
        is_host=all(buft.is_host for buft in bufts),
        pad_row_elems=max(buft.pad_row_elems for buft in bufts),
    )


def check_shares(arch: str, options: Options) -> None:
    """PlacementError where llama.cpp would refuse `-sm tensor` whatever the devices are."""
    if options.split_mode is not SplitMode.TENSOR:
        return
    if arch in NEVER_SHARED:
        raise PlacementError(
            f"-sm tensor is not there for {arch} models.",
            "llama.cpp does not know how to share their tensors among devices, and stops too.",
            "Choose -sm layer.",
        )
    if options.flash_attn is FlashAttn.OFF:
        raise PlacementError(
            "-sm tensor needs flash attention.",
            "llama.cpp requires it there, and stops without it.",
            "Leave -fa off out, or choose -sm layer.",
        )


def check_members(members: Sequence[DeviceFacts]) -> None:
    """PlacementError unless they can be joined."""
    if not members:
        raise PlacementError(
            "-sm tensor needs at least one device.",
            "It joins devices with memory of their own, and none is there beside the CPU.",
            "Leave -sm tensor out, or plan with devices on paper: --virtual GPU0:gpu:8192",
        )
    if len(members) > MOST_MEMBERS:
        raise PlacementError(
            f"-sm tensor cannot join {len(members)} devices.",
            f"It takes {MOST_MEMBERS} at most.",
            "Choose fewer devices (-dev).",
        )
