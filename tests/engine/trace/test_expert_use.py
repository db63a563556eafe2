"""Sums of expert copies, from runs on devices that compute nothing."""

import numpy as np

from engine.core.experts import ExpertUse
from engine.trace.expert_use import copied_runs, expert_pieces, expert_use
from engine.trace.records import MEMBER_LANE, SpanKind
from tests.engine.sched.expert_run import EXPERT_BYTES, N_EXPERTS, PAD_BYTES, expert_run

THREE_RUNS = (7, 1, 5, 2)
ONE_RUN = (0, 1, 2, 3)


def test_pieces_of_a_step_are_summed_against_the_whole_weights():
    """The null device reads ids of its own memory as 0: down uses expert 0."""
    table, recorder = expert_run(THREE_RUNS)
    spans = recorder.snapshot().spans()

    use = expert_use(spans, table.copies)

    pieces = expert_pieces(spans)
    assert use == ExpertUse(
        n_steps=1,
        n_copies=2,
        n_used=4 + 1,
        n_experts=2 * N_EXPERTS,
        copied_bytes=(4 + 1) * EXPERT_BYTES + 3 * PAD_BYTES,
        whole_bytes=2 * N_EXPERTS * EXPERT_BYTES,
        copy_ns=int((pieces["end_ns"] - pieces["start_ns"]).sum()),
    )


def test_steps_are_summed_and_every_copy_counts_in_each():
    table, recorder = expert_run(THREE_RUNS, ONE_RUN)
    spans = recorder.snapshot().spans()

    both = expert_use(spans, table.copies)
    each = [expert_use(spans[spans["step"] == step], table.copies) for step in (0, 1)]

    assert each[0] is not None
    assert each[1] is not None
    assert both == each[0] + each[1]
    assert (both.n_steps, both.n_copies) == (2, 4)


def test_the_runs_of_one_copy_in_one_step_ascend():
    _, recorder = expert_run(THREE_RUNS, ONE_RUN)
    spans = recorder.snapshot().spans()
    up = spans[(spans["kind"] == SpanKind.COPY) & (spans["index"] == 0)]

    assert copied_runs(up[up["step"] == 0][::-1]) == ((1, 2), (5, 5), (7, 7))
    assert copied_runs(up[up["step"] == 1]) == ((0, 3),)


def test_without_expert_copies_there_are_no_sums_rather_than_zeros():
    table, recorder = expert_run(THREE_RUNS)
    spans = recorder.snapshot().spans()

    assert expert_use(spans[spans["first_expert"] < 0], table.copies) is None


def test_experts_that_go_to_several_devices_at_once_were_used_once():
    table, recorder = expert_run(THREE_RUNS)
    once = recorder.snapshot().of_kind(SpanKind.COPY)
    into_each = np.concatenate([once, once])
    into_each["lane"] = np.repeat((MEMBER_LANE, MEMBER_LANE + 1), len(once))

    assert expert_use(into_each, table.copies) == expert_use(once, table.copies)
    up = into_each[into_each["index"] == 0]
    assert copied_runs(up) == ((1, 2), (5, 5), (7, 7))
