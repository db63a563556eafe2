"""Which option stands in which section, and its label. Pure; in the order of the option table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """A section: its options as (field, label), and whether it is open at first."""

    id: str
    title: str
    rows: tuple[tuple[str, str], ...]
    is_open: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """Its options."""
        return tuple(field for field, _ in self.rows)


GROUPS: tuple[Group, ...] = (
    Group(
        "layers",
        "Layers and devices",
        (
            ("n_gpu_layers", "Layers on the GPU"),
            ("layer_rule", "Partial -ngl takes"),
            ("split_mode", "Layers among GPUs"),
            ("main_gpu", "Main GPU"),
            ("tensor_split", "Share of each GPU"),
            ("n_copies", "Graphs at once"),
            ("devices", "Devices"),
        ),
        is_open=True,
    ),
    Group(
        "weights",
        "Weights and experts",
        (
            ("tensor_overrides", "Weights by name"),
            ("cpu_moe", "Experts on the CPU"),
            ("n_cpu_moe", "Only in first layers"),
        ),
    ),
    Group(
        "cpu_memory",
        "The CPU's memory",
        (
            ("offload_kqv", "KV cache by layer"),
            ("repack", "Repack weights"),
            ("host_buffer", "Pinned memory"),
            ("mmap", "Map the file"),
        ),
    ),
    Group(
        "context",
        "Context, batches, attention",
        (
            ("n_ctx", "Context"),
            ("n_batch", "Batch"),
            ("n_ubatch", "Tokens in a graph"),
            ("flash_attn", "Flash attention"),
            ("cache_type_k", "Type of keys"),
            ("cache_type_v", "Type of values"),
            ("pooling", "Pooling"),
        ),
    ),
    Group(
        "computing",
        "Computing",
        (
            ("op_offload", "Offload operations"),
            ("blas", "BLAS"),
            ("n_threads", "Threads"),
        ),
    ),
    Group(
        "sampling",
        "Choice of tokens",
        (
            ("seed", "Seed"),
            ("temperature", "Temperature"),
            ("top_k", "Top k"),
            ("top_p", "Top p"),
        ),
    ),
)
