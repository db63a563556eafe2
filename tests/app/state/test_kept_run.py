"""A kept run has plan ids and an epoch that no engine gives, and still says the same."""

import numpy as np

from app.models.split_times import split_times
from app.state.kept_run import kept_plans, kept_summary, kept_trace
from tests.app.models import paper_run
from tests.app.state.test_app_state import summary


def met(plans):
    return {plan.plan_id: plan for plan in (plans.prompt, plans.token)}


def test_trace_summary_and_plans_still_name_each_other():
    plans = paper_run.plans()
    trace = paper_run.run_on_paper(plans)
    before = split_times(trace.spans(), plans.prompt)

    kept = kept_plans(met(plans))
    prompt = kept[kept_summary(summary(plans)).prompt_plan_id]
    after = split_times(kept_trace(trace).spans(), prompt)

    assert np.array_equal(before.split_ns, after.split_ns)


def test_the_ids_are_none_that_an_engine_gives():
    plans = paper_run.plans()
    trace = kept_trace(paper_run.run_on_paper(plans))

    assert all(plan_id < 0 for plan_id in kept_plans(met(plans)))
    assert (trace.spans()["plan_id"] <= 0).all()
    assert trace.epoch < 0


def test_keeping_twice_keeps_the_ids():
    once = kept_plans(met(paper_run.plans()))

    assert kept_plans(once).keys() == once.keys()
