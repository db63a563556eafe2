from engine.core.explain import Test as Asked
from engine.core.explain import explain
from engine.core.why_text import answer_mark, plain, shown_tests, why_text
from tests.app.models import paper_run


def explained(node_id):
    table = paper_run.plans().prompt
    return explain(table, table.slot(node_id))


def test_the_text_has_the_decision_the_tests_and_the_box_around_the_first_failed_one():
    text = why_text(explained(12))

    assert text.splitlines() == [
        "cache_k_l0 (view)  #12",
        "SET_ROWS · f16 [192, 512]",
        "On the CPU because it writes into cache_k_l0, and layer 0's KV cache lives in CPU memory.",
        "",
        "Decided in  pass 1, its home  [1.dst]",
        "Neighbour   none: decided by its own buffer",
        "",
        "Device   supports_op  supports_buft  offload_op  prio",
        "OpenCL0  ✓            [✕]            \u2013           0",
        "CPU      ✓            ✓              \u2013           1",
        "",
        "[ ] first test that failed; \u2013 not asked",
    ]


def test_the_column_reached_is_there_for_pass_2_only():
    swept, homed = explained(24), explained(12)

    assert Asked.REACHED in shown_tests(swept)
    assert Asked.REACHED not in shown_tests(homed)


def test_a_test_that_was_not_asked_is_a_dash_and_never_a_cross():
    candidate = explained(12).candidates[0]

    assert answer_mark(candidate, Asked.OFFLOAD_OP) == "\u2013"
    assert answer_mark(candidate, Asked.SUPPORTS_BUFT) == "✕"


def test_plain_text_has_no_marks_of_emphasis():
    assert plain("it **follows** its weight") == "it follows its weight"
