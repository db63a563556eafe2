"""Run the passes in order and keep every state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.placement import SplitTrace
from engine.sched.passes import (
    pass1_preallocated,
    pass2_expand,
    pass3_upgrade,
    pass4_sources,
    pass5_split,
    pass6_pipeline,
)

if TYPE_CHECKING:
    from engine.sched.passes.problem import Problem

STEPS = (
    ("1", pass1_preallocated.place_preallocated),
    ("2a", pass2_expand.expand_gpu_down),
    ("2b", pass2_expand.expand_gpu_up),
    ("2c", pass2_expand.expand_rest_down),
    ("2d", pass2_expand.expand_rest_up),
    ("3", pass3_upgrade.upgrade),
    ("4", pass4_sources.assign_sources),
)


def split_graph(problem: Problem) -> SplitTrace:
    """The assignment after every step, the cut, and the inputs that have pipeline copies."""
    assignment = problem.start()
    states = []
    for step, run_pass in STEPS:
        assignment = run_pass(problem, assignment)
        states.append((step, assignment))
    return SplitTrace(
        steps=tuple(states),
        cut=pass5_split.cut(problem, assignment),
        pipeline_inputs=pass6_pipeline.copy_inputs(problem, assignment),
    )
