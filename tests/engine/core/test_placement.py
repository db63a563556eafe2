"""Causes: every value has a tag of ggml's and a step of the pass row."""

import pytest

from engine.core.placement import NO_CAUSE, PASS_STEPS, Cause, CauseKind, cause_tag

TAGS = {
    "": {CauseKind.NONE},
    "usr": {CauseKind.USER},
    "1.dst": {CauseKind.PREALLOCATED},
    "1.vsrc": {CauseKind.PREALLOCATED_VIEW},
    "1.inp": {CauseKind.GRAPH_INPUT},
    "1.off": {CauseKind.OFFLOADED},
    "2.sup": {
        CauseKind.GPU_DOWN, CauseKind.GPU_UP, CauseKind.REST_DOWN, CauseKind.REST_UP,
        CauseKind.FIRST_SUPPORTED,
    },
    "3.best": {CauseKind.BEST_OF_INPUTS},
    "3.upg": {CauseKind.UPGRADED},
    "4.vsrc": {CauseKind.VIEW_SOURCE},
    "4.cur": {CauseKind.FROM_CONSUMER},
    "4.cpy": {CauseKind.INPUT_COPY},
    "6.cpy": {CauseKind.PIPELINE_COPY},
}  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_every_cause_has_ggmls_tag(tag):
    assert {kind for kind in CauseKind if cause_tag(kind) == tag} == TAGS[tag]


def test_the_tag_of_a_weight_says_which_source_it_is():
    assert Cause(CauseKind.WEIGHT, 3, 17).tag == "1.wgt3"
    assert NO_CAUSE.tag == ""


@pytest.mark.parametrize("kind", CauseKind, ids=lambda kind: kind.name)
def test_every_cause_belongs_to_a_step(kind):
    outside = {CauseKind.NONE: "", CauseKind.USER: "0", CauseKind.PIPELINE_COPY: "6"}

    assert kind.step == outside[kind] if kind in outside else kind.step in PASS_STEPS


def test_the_steps_are_in_the_order_of_the_passes():
    assert sorted(PASS_STEPS) == list(PASS_STEPS)
