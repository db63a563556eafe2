"""What was tried to load backends, as values that can be printed, sent and added up."""

import json
import pickle

import pytest

from engine.core.load_report import Attempt, LoadReport, Outcome, Probe

PROBE = Probe(
    opened=True, symbols=("backend_init",), api_version=2, score=7, devices=("A",), error="late"
)
TRIED = Attempt("/a/x.py", "python", "x", "", "asked for", Outcome.REFUSED, "it is a folder")


def test_a_probe_comes_back_from_json_as_it_was():
    assert Probe.from_json(json.loads(json.dumps(PROBE.to_json()))) == PROBE


def test_a_report_is_plain_json_and_crosses_a_pipe():
    report = LoadReport((TRIED,))

    (row,) = json.loads(json.dumps(report.to_json()))["attempts"]
    assert (row["path"], row["outcome"], row["found"]) == ("/a/x.py", "refused", True)
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize(
    ("outcome", "has_loaded"),
    [(outcome, outcome in (Outcome.REGISTERED, Outcome.HIDDEN)) for outcome in Outcome],
)
def test_only_what_was_registered_counts_as_loaded(outcome, has_loaded):
    assert LoadReport((TRIED, TRIED.ended(outcome))).has_loaded == has_loaded
    assert outcome.is_loaded == has_loaded


def test_a_path_with_nothing_there_is_told_from_a_folder_without_libraries():
    gone = LoadReport((Attempt("/a", "", "", "", "", Outcome.NOT_FOUND),))

    assert gone.nothing_words("/a") == "There is no such file or folder."
    assert gone.nothing_words("/") == "No file there is called as a backend library is."


def test_reports_are_joined_in_order_and_picked_apart_by_backend():
    others = [Attempt("/a/y.py", "python", "y", "", "", Outcome.NOT_FOUND)]
    others.append(Attempt("/a/x.so", "ggml", "x", "", "", Outcome.REGISTERED))

    joined = LoadReport.joined([LoadReport((TRIED,)), LoadReport(tuple(others))])

    assert joined.attempts == (TRIED, *others)
    assert joined.of("python", "x").attempts == (TRIED,)
