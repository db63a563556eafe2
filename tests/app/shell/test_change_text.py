"""The change bar says what moved, in both batches."""

from dataclasses import replace

import pytest

from app.shell.change_text import change_facts, change_note, change_title, token_facts
from app.shell.markup import to_plain
from app.theme.text import MINUS, SPACE, THIN
from engine.core.diff import diff_sets
from engine.core.options import Options
from tests.app.models import paper_run

OFF = "op_offload on → off"


def words(facts) -> list[str]:
    table = str.maketrans({THIN: " ", SPACE: " ", MINUS: "-"})
    return [to_plain(fact).translate(table) for fact in facts]


def test_op_offload_off_is_told_as_in_the_design():
    diff = diff_sets(paper_run.plans(), paper_run.plans(op_offload=False))

    assert words(change_facts(diff, OFF)) == [
        OFF,
        "724 nodes move to CPU",
        "splits 321 → 2 -319",
        "copies 383 → 7 -376",
        "copied 95.56 → 2.76 MiB -92.80",
        "CPU +11.25 MiB",
        "OpenCL0 -1.12 MiB",
    ]


def test_no_effect_on_a_token_is_said_with_the_rules_number():
    diff = diff_sets(paper_run.plans(), paper_run.plans(op_offload=False))

    assert words(token_facts(diff, OFF)) == ["one token: no effect, the rule starts at 32"]


def test_layers_that_move_change_a_token_too():
    diff = diff_sets(paper_run.plans(2), paper_run.plans(31))

    assert words(token_facts(diff, "-ngl 2 → 31"))[0] == "one token: 898 nodes moved"


def test_a_change_without_effect_names_no_figures():
    diff = diff_sets(paper_run.plans(), paper_run.plans())

    assert words(change_facts(diff, "-t 0 → 4")) == ["-t 0 → 4", "no node moves"]
    assert words(token_facts(diff, "-t 0 → 4")) == ["one token: no effect"]


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"op_offload": False}, OFF),
        ({"n_gpu_layers": 2}, "-ngl 31 → 2"),
        ({"n_ctx": 512, "op_offload": False}, f"ctx the model's → 512, {OFF}"),
    ],
)
def test_a_change_is_named_in_llama_cpps_words(changes, title):
    was = Options()

    assert change_title(was, replace(was, **changes), n_layers=30) == title


def test_a_change_during_a_run_says_when_it_acts():
    layers = change_note(Options(n_gpu_layers=2), Options(n_gpu_layers=3))
    context = change_note(Options(), Options(n_ctx=512, op_offload=False))
    offload = change_note(Options(), Options(op_offload=False))

    assert layers == context == "applies at the next run"
    assert offload == "acts from the next graph on"


def test_the_note_follows_the_title():
    diff = diff_sets(paper_run.plans(), paper_run.plans(op_offload=False))

    assert change_facts(diff, OFF, "applies at the next run")[1] == "applies at the next run"


def test_a_context_of_the_model_is_named_by_its_number():
    title = change_title(Options(), Options(n_ctx=512), 30, 8192)

    assert words([title]) == ["ctx 8 192 → 512"]
