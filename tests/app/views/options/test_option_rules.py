import pytest

from app.views.options.rules import pattern_problem, rules_facts
from engine.core.options import TensorOverride
from engine.core.summary import TensorSummary
from tests.app.models.paper_run import words
from tests.app.views.options.panel import TENSORS


def said(*patterns, tensors=TENSORS):
    """Return what stands below each rule."""
    facts = rules_facts([TensorOverride(p, "CPU") for p in patterns], tensors)
    return [words(fact.words) for fact in facts]


def test_a_rule_says_how_many_tensors_it_matches_and_their_size():
    assert said(r"blk\.1\.ffn_.*") == ["matches 3 tensors, 3.00 MiB"]
    assert said(r"blk\.0\.attn_q") == ["matches 1 tensor, 1.00 MiB"]


def test_a_pattern_may_stand_anywhere_in_the_name():
    assert said("ffn_(up|gate)") == ["matches 6 tensors, 6.00 MiB"]
    assert said("^ffn_up") == ["matches no tensor of this model"]


def test_the_first_rule_counts_and_the_later_ones_say_so():
    assert said(r"blk\.1\.", "ffn_up", r"blk\.1\.ffn_up", r"blk\.1\.ffn") == [
        "matches 5 tensors, 5.00 MiB",
        "matches 2 tensors, 2.00 MiB; 1 more by a rule above",
        "no effect: 1 tensor belongs to a rule above",
        "no effect: 3 tensors belong to a rule above",
    ]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (
            "ffn_(gate",
            "Not used: no regular expression: missing ), unterminated subpattern, at character 5.",
        ),
        ("*", "Not used: no regular expression: nothing to repeat, at character 1."),
        ("a{1,2}", "Not used: at a , the next rule begins on the command line."),
        ("a=b", "Not used: at a = the memory's name begins on the command line."),
    ],
)
def test_what_is_wrong_is_named_with_its_place(pattern, problem):
    assert pattern_problem(pattern) == problem
    facts = rules_facts([TensorOverride(pattern, "CPU")], TENSORS)[0]
    assert not facts.is_used


def test_a_broken_rule_takes_no_tensor_from_the_next():
    assert said("ffn_(up", "ffn_up")[1] == "matches 3 tensors, 3.00 MiB"


def test_an_empty_rule_is_no_fault_and_not_used():
    facts = rules_facts([TensorOverride("", "CPU")], TENSORS)[0]

    assert (facts.problem, facts.is_used) == ("", False)


def test_a_pattern_that_may_take_forever_is_given_up():
    tensors = [TensorSummary("x" * 60 + "a", "f32", (1,), 4)]

    assert said("(x|xx)+!", tensors=tensors) == [
        "Not used: this pattern takes too long to search for."
    ]
