"""The change bar says what moved, in both batches."""

from dataclasses import replace

import pytest

from app.shell.change_text import change_facts, change_note, change_title, token_facts
from app.shell.markup import to_plain
from app.theme.text import MINUS, SPACE, THIN
from engine.core.diff import diff_sets
from engine.core.options import Options, TensorOverride
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
        ({"tensor_split": (3.0, 1.0)}, "-ts auto → 3,1"),
        ({"devices": ()}, "-dev auto → none"),
        ({"repack": False}, "repack on → off"),
        ({"cache_type_v": "q8_0"}, "-ctv f16 → q8_0"),
        ({"n_threads": 4}, "-t auto → 4"),
        ({"seed": 1, "top_k": 2, "top_p": 0.5, "n_batch": 64}, "4 options changed"),
    ],
)
def test_a_change_is_named_in_llama_cpps_words(changes, title):
    was = Options()

    assert change_title(was, replace(was, **changes), n_layers=30) == title


def rules_title(was, now):
    """Return the title of a change of rules; `was` and `now` are patterns."""
    sets = [
        Options(tensor_overrides=tuple(TensorOverride(p, "CPU") for p in s)) for s in (was, now)
    ]
    return words([change_title(*sets, 30)])[0]


@pytest.mark.parametrize(
    ("was", "now", "title"),
    [
        ([], ["ffn"], "-ot +ffn=CPU"),
        (["ffn"], ["attn"], "-ot +attn=CPU -ffn=CPU"),
        (["a", "b", "c", "d"], [], "-ot -4 rules"),
        (["a", "b"], ["b", "a"], "-ot in another order"),
        ([], ["x" * 40], f"-ot +{'x' * 16}…{'x' * 16}=CPU"),
    ],
)
def test_rules_that_came_and_went_are_named(was, now, title):
    assert rules_title(was, now) == title


def test_stars_of_a_pattern_are_no_markup():
    title = change_title(Options(), Options(tensor_overrides=(TensorOverride(r"\**", "CPU"),)), 30)

    said = change_facts(diff_sets(paper_run.plans(), paper_run.plans()), title)[0]
    assert to_plain(said).replace("\u2060", "") == r"-ot +\**=CPU"


def test_a_change_during_a_run_says_when_it_acts():
    layers = change_note(Options(n_gpu_layers=2), Options(n_gpu_layers=3))
    context = change_note(Options(), Options(n_ctx=512, op_offload=False))
    seed = change_note(Options(), Options(seed=3))
    offload = change_note(Options(), Options(op_offload=False))
    threads = change_note(Options(), Options(n_threads=3))

    assert layers == context == seed == "applies at the next run"
    assert offload == threads == "acts from the next graph on"


def test_the_note_follows_the_title():
    diff = diff_sets(paper_run.plans(), paper_run.plans(op_offload=False))

    assert change_facts(diff, OFF, "applies at the next run")[1] == "applies at the next run"


def test_a_context_of_the_model_is_named_by_its_number():
    title = change_title(Options(), Options(n_ctx=512), 30, 8192)

    assert words([title]) == ["ctx 8 192 → 512"]
