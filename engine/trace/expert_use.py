"""What expert copies moved, and what copying all would have been. Pure functions of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.core.experts import ExpertUse, Run
from engine.trace.metrics import step_sums
from engine.trace.records import MEMBER_LANE, SpanKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.trace.records import Spans


def expert_pieces(spans: Spans) -> Spans:
    """The spans that are runs of experts; of those into several devices at once the first's."""
    found: Spans = spans[(spans["kind"] == SpanKind.COPY) & (spans["first_expert"] >= 0)]
    members = found["lane"][found["lane"] >= MEMBER_LANE]
    if not len(members):
        return found
    once: Spans = found[(found["lane"] < MEMBER_LANE) | (found["lane"] == members.min())]
    return once


def expert_use(spans: Spans, copies: npt.NDArray[np.void]) -> ExpertUse | None:
    """The expert copies among the spans of one plan, together; None where there is none.

    copies: the plan's table of copies.
    """
    mine = expert_pieces(spans)
    if not len(mine):
        return None
    sums = step_sums(mine)
    planned = copies[sums.item_id]
    return ExpertUse(
        n_steps=len(np.unique(sums.step)),
        n_copies=len(sums.item_id),
        n_used=int((mine["last_expert"].astype(np.int64) - mine["first_expert"] + 1).sum()),
        n_experts=int(planned["n_experts"].sum()),
        copied_bytes=int(sums.n_bytes.sum()),
        whole_bytes=int(planned["bytes"].sum()),
        copy_ns=int(sums.duration_ns.sum()),
    )


def copied_runs(spans: Spans) -> tuple[Run, ...]:
    """The runs of experts that the pieces of one copy in one step hold, ascending."""
    mine = expert_pieces(spans)
    return tuple(
        sorted(zip(mine["first_expert"].tolist(), mine["last_expert"].tolist(), strict=True))
    )
