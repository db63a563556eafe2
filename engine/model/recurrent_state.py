"""States that recurrent layers carry from token to token. Source: ARCH.md 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.types import TensorType
from engine.model.kv_cache import CacheStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.options import Options
    from engine.core.tensor import Tensor
    from engine.model.hparams import Hparams
    from engine.model.kv_cache import CacheBuffer
    from engine.model.placement import ModelPlacement

N_ROWS = 1
"""One sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentState:
    """Two tensors a recurrent layer, f32 [elements, N_ROWS]; other layers are not there."""

    conv: Mapping[int, Tensor]
    """The inputs that the convolution looks back at."""
    ssm: Mapping[int, Tensor]
    buffers: tuple[CacheBuffer, ...]


def plan_state(hparams: Hparams, placement: ModelPlacement, options: Options) -> RecurrentState:
    """States on each layer's device, or on the CPU without offload_kqv."""
    store = CacheStore(placement, "recurrent state", offload_kqv=options.offload_kqv)
    conv: dict[int, Tensor] = {}
    ssm: dict[int, Tensor] = {}
    sizes = hparams.recurrence
    if sizes is not None:
        for il, layer in enumerate(hparams.layers):
            if layer.is_recurrent:
                conv[il] = store.add(f"cache_r_l{il}", TensorType.F32, (sizes.n_embd_r, N_ROWS), il)
                ssm[il] = store.add(f"cache_s_l{il}", TensorType.F32, (sizes.n_embd_s, N_ROWS), il)
    return RecurrentState(conv, ssm, store.buffers())
