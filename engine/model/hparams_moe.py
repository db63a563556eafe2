"""Keys about experts that only some architectures read. Source: ARCH.md 1.11, 1.14 and 4."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.model.arch_keys import LARGEST
from engine.model.hparams import with_dense_layers
from engine.model.hparams_parts import ExpertRouting, Gating

if TYPE_CHECKING:
    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams import Hparams

N_DENSE = "leading_dense_block_count"


def read_routing(keys: ArchKeys, hparams: Hparams, gating: Gating) -> ExpertRouting:
    """How tokens find experts; `gating` where the file does not say."""
    known = [kind.value for kind in Gating]
    value = keys.count("expert_gating_func", 0, low=0, high=LARGEST) or gating.value
    if value not in known:
        raise keys.wrong("expert_gating_func", value, f"one of {', '.join(map(str, known))}")
    return replace(
        hparams.routing,
        gating=Gating(value),
        normalises=keys.flag("expert_weights_norm", default=False),
        scale=keys.number("expert_weights_scale", 0.0),
    )


def with_leading_dense_layers(keys: ArchKeys, hparams: Hparams) -> Hparams:
    """`hparams` whose first layers have no experts, as many as the file says."""
    n_dense = keys.count(N_DENSE, 0, low=0)
    return with_dense_layers(hparams, [il < n_dense for il in range(hparams.n_layer_all)])


def read_shared_width(keys: ArchKeys, hparams: Hparams) -> int:
    """Width of the expert that every token uses: that of so many others."""
    n_shared = keys.count("expert_shared_count")
    return hparams.layers[-1].n_ff_exp * n_shared
