"""Rules of devices on paper that a table alone cannot say. Source: SCHED.md 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.blas import takes_blas
from engine.core.devices import TableRules
from engine.core.ops import EMPTY_OPS
from engine.core.repack import reads_repacked, supports_repacked
from engine.core.rows import SPLIT, multiplies_rows, reads_split_memory

if TYPE_CHECKING:
    from engine.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class CpuRules(TableRules):
    """A CPU: what the table says, and products with interleaved weights where there is a layout."""

    features: frozenset[str] = frozenset()

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether the table allows it; a source in CPU_REPACK decides too."""
        if tensor.op not in EMPTY_OPS and reads_repacked(tensor):
            return supports_repacked(tensor, self.features)
        return TableRules.supports_op(self, tensor)


@dataclass(frozen=True, slots=True)
class BlasRules(TableRules):
    """An accelerator for large products (ggml-blas.cpp, supports_op)."""

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether it is a product of matrices without gaps that is large enough."""
        if tensor.op in EMPTY_OPS:
            return True
        return takes_blas(tensor) and TableRules.supports_op(self, tensor)


@dataclass(frozen=True, slots=True)
class SplitRules(TableRules):
    """A device with split memory: what the table says, and products that it can share out."""

    device: str = ""

    @classmethod
    def of(cls, table: TableRules, device: str) -> SplitRules:
        """The rules of `device` that `table` are without such memory."""
        return cls(
            ops=table.ops,
            not_ops=table.not_ops,
            bufts=table.bufts | {f"{device}{SPLIT}"},
            host_bufts=table.host_bufts,
            offload_min_batch=table.offload_min_batch,
            device=device,
        )

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether the table allows it; a source in split memory decides too."""
        if reads_split_memory(tensor) and not multiplies_rows(tensor, self.device):
            return False
        return TableRules.supports_op(self, tensor)
