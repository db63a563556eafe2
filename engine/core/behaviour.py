"""What differs between two versions of ggml's scheduler, one named switch a difference.

Source: SCHED.md 1. The defaults are the current version's.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.ops import INPLACE_OPS, Op

PIPELINE_COPIES = 4
"""Graphs in flight with pipeline parallelism (GGML_SCHED_MAX_COPIES)."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One version's rules.

    `skip_weight_rule`: operations that do not follow their weights.
    `max_split_inputs`: copies a split may have; 0 is no limit.
    `inputs_copied_when_read`: user inputs get their pipeline copies where a node first reads them,
    and unread ones get none; else all inputs do, in the order of the leafs.
    `records_every_split`: a split without inputs records its event too.
    `waits_without_inputs`: a split without inputs waits for another backend's split before it.
    `inplace_ops`: operations whose result may take a source's memory.
    """

    skip_weight_rule: frozenset[Op] = frozenset({Op.ROPE, Op.FLASH_ATTN_EXT})
    max_split_inputs: int = 0
    inputs_copied_when_read: bool = False
    records_every_split: bool = True
    waits_without_inputs: bool = True
    inplace_ops: frozenset[Op] = INPLACE_OPS


CURRENT = Behaviour()
"""ggml 0.25.3, commit 0c1e57098."""

GGML_0_13 = Behaviour(
    skip_weight_rule=frozenset({Op.ROPE}),
    max_split_inputs=30,
    inputs_copied_when_read=True,
    records_every_split=False,
    waits_without_inputs=False,
    inplace_ops=INPLACE_OPS - {Op.CLAMP},
)
"""ggml 0.13.1, commit af6528e6d."""
