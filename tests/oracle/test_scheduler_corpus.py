"""Our scheduler gives what real ggml gave, on every recorded case that needs no pipeline."""

import pytest

from tests.oracle import golden
from tests.oracle.script import first_difference, needs_later_stage

SCENARIOS = [case for case in golden.scenarios() if not needs_later_stage(case.script)]
CORPUS = [case for case in golden.corpus() if not needs_later_stage(case.script)]


@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: case.name)
def test_scenario_equals_the_recording(case):
    assert first_difference(case.script, case.results) == ""


def test_every_corpus_case_equals_its_recording():
    different = {
        case.name: difference
        for case in CORPUS
        if (difference := first_difference(case.script, case.results))
    }

    assert different == {}


def test_the_golden_set_has_the_cases_that_were_asked_for():
    assert len(SCENARIOS) >= 16
    assert len(CORPUS) >= 70
