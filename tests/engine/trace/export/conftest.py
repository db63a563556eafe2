"""One small trace with everything in it, for all formats."""

from __future__ import annotations

import pytest
from numpy import array

from engine.trace.export.meta import CopyMeta, LaneMeta, NodeMeta, PlanMeta, SplitMeta, TraceMeta
from engine.trace.records import (
    HOST_LANE,
    NO_EXPERTS,
    SPAN_DTYPE,
    Mark,
    SpanFlag,
    SpanKind,
    StepKind,
)
from engine.trace.snapshot import TraceSnapshot

GPU, CPU = 0, 1
T0 = 5_000_000_000_123
NONE = 255


@pytest.fixture
def meta() -> TraceMeta:
    """Split 0 on the GPU feeds split 1 on the CPU, which feeds split 2 on the GPU."""
    plan = PlanMeta(
        splits=(SplitMeta("attn_norm-0 +3", 4), SplitMeta("ffn_up-0", 2), SplitMeta("ffn_out-0")),
        copies=(
            CopyMeta("OpenCL0#inp_tokens#0", 0),
            CopyMeta("CPU#ffn_norm-0#0", 1, 0),
            CopyMeta("OpenCL0#ffn_up-0#0", 2, 1),
            CopyMeta("OpenCL0#ffn_down.weight#0", 2),
        ),
        nodes=(NodeMeta("ffn_up-0", "MUL_MAT", 1, "1.wgt0"), NodeMeta("unnamed")),
    )
    return TraceMeta(
        lanes=(LaneMeta("OpenCL0", 'PoCL "cpu"', "GPU"), LaneMeta("CPU", "Xeon\u2122", "CPU")),
        plans={3: plan},
        command='python -m engine run -ngl 1 "a b"',
        options=(("n_gpu_layers", "1"),),
    )


@pytest.fixture
def snapshot() -> TraceSnapshot:
    """Two steps; in each, copies 2 and 3 overlap, and split 2 has no length in the second."""
    rows = [row for step in range(2) for row in _step_rows(step, T0 + step * 10_000)]
    marks = (Mark(T0 + 10_000, "op_offload off"),)
    spans = array([(*row, *NO_EXPERTS) for row in rows], SPAN_DTYPE)
    return TraceSnapshot((spans,), marks, lost=4, seq=len(rows))


def _step_rows(step: int, t: int) -> list[tuple[int, ...]]:
    kind = StepKind.TOKEN if step else StepKind.PROMPT
    last = t + 9000 if step else t + 8000
    user, weight = SpanFlag.USER_INPUT, SpanFlag.WEIGHT
    return [
        (SpanKind.COPY, GPU, CPU, user, 3, 0, step, t + 10, t + 110, 32),
        (SpanKind.SPLIT, GPU, NONE, SpanFlag.CLOCK_CONVERTED, 3, 0, step, t + 110, t + 3000, 0),
        (SpanKind.WAIT, GPU, NONE, 0, 3, 1, step, t + 200, t + 3000, 0),
        (SpanKind.COPY, CPU, GPU, 0, 3, 1, step, t + 3000, t + 3000, 1 << 20),
        (SpanKind.NODE, CPU, NONE, 0, 3, 0, step, t + 4000, t + 5000, 0),
        (SpanKind.NODE, CPU, NONE, 0, 3, 1, step, t + 5000, t + 5500, 0),
        (SpanKind.SPLIT, CPU, NONE, 0, 3, 1, step, t + 3900, t + 6000, 0),
        (SpanKind.COPY, GPU, CPU, 0, 3, 2, step, t + 6000, t + 7000, 1 << 20),
        (SpanKind.COPY, GPU, CPU, weight, 3, 3, step, t + 6500, t + 7500, 1 << 20),
        (SpanKind.SPLIT, GPU, NONE, 0, 3, 2, step, t + 8000, last - step * 1000, 0),
        (SpanKind.STEP, HOST_LANE, kind, 0, 3, step, step, t, last, 7),
    ]
