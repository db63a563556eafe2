"""Our scheduler gives what real ggml gave, on every recorded case and for both versions."""

import pytest

from engine.core.behaviour import CURRENT, GGML_0_13
from tests.oracle import golden
from tests.oracle.run_corpus import main
from tests.oracle.script import first_difference

BEHAVIOURS = {golden.VERSION: CURRENT, golden.OLD_VERSION: GGML_0_13}
SCENARIOS = [case for version in BEHAVIOURS for case in golden.scenarios(version)]


@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: f"{case.name}-{case.version}")
def test_scenario_equals_the_recording(case):
    assert first_difference(case.script, case.results, BEHAVIOURS[case.version]) == ""


@pytest.mark.parametrize("version", BEHAVIOURS)
def test_every_corpus_case_equals_its_recording(version):
    cases = golden.corpus(version)
    different = {
        case.name: difference
        for case in cases
        if (difference := first_difference(case.script, case.results, BEHAVIOURS[version]))
    }

    assert different == {}
    assert len(cases) >= 100


def test_the_golden_set_has_the_cases_that_were_asked_for():
    assert len(SCENARIOS) == 19 + 16


# The runner that takes any folder.


@pytest.fixture
def folders(tmp_path):
    """Two cases of the current version and, for the first, the older version's recording."""
    cases, other = tmp_path / "cases", tmp_path / "the other"
    cases.mkdir()
    other.mkdir()
    for case in golden.scenarios()[:2]:
        (cases / f"{case.name}.txt").write_text(case.script)
        (cases / f"{case.name}.jsonl").write_text(case.results)
    old = golden.scenarios(golden.OLD_VERSION)[0]
    (other / f"{old.name}.jsonl").write_text(old.results)
    return cases, other


def test_the_runner_counts_equal_cases_of_both_versions(folders, capsys):
    status = main([str(folder) for folder in folders])

    assert capsys.readouterr().out.splitlines()[-1] == "3 equal, 0 different"
    assert status == 0


def test_the_runner_names_a_case_that_differs_and_where(folders, capsys):
    cases, _ = folders
    first = sorted(cases.glob("*.jsonl"))[0]
    first.write_text(first.read_text().replace('"n_copies":1', '"n_copies":2', 1))

    status = main([str(cases)])

    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 equal, 1 different"
    assert first.stem in lines[0]
    assert "n_copies: 1, recorded 2" in lines[0]
    assert status == 1


def test_a_script_that_cannot_run_counts_as_different(folders, capsys):
    cases, _ = folders
    sorted(cases.glob("*.txt"))[0].write_text("dance\n")

    assert main([str(cases)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 equal, 1 different"
