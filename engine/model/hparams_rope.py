"""Sections of a rotation that takes four positions a token. Source: ARCH.md 1.9."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.model.hparams import changed

if TYPE_CHECKING:
    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams import Hparams, LayerHparams

SECTIONS = "rope.dimension_sections"
N_SECTIONS = 4


def with_sections(keys: ArchKeys, hparams: Hparams) -> Hparams:
    """`hparams` with the pairs of each kind of position; ModelError unless the file has them."""
    key = SECTIONS
    found = keys.integers(key, N_SECTIONS)
    n_pairs = hparams.layers[0].rope.n_dims // 2
    if not 0 < sum(found) <= n_pairs:
        raise keys.wrong(key, list(found), f"four numbers whose sum is from 1 to {n_pairs}")
    sections = (found[0], found[1], found[2], found[3])

    def turn(layer: LayerHparams) -> LayerHparams:
        return replace(layer, rope=replace(layer.rope, sections=sections))

    return replace(hparams, layers=changed(hparams.layers, (True,) * hparams.n_layer, turn))
