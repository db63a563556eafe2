from dataclasses import replace

import pytest

from app.views.options.notes import PanelFacts, note, shares_words, tip, why_off
from engine.core.options import OPTION_SPECS, Options, Redo, SplitMode
from tests.app.models.paper_run import words

FACTS = PanelFacts(
    names=("GPU0", "GPU1", "CPU"), gpus=("GPU0", "GPU1"), n_layers=30, n_expert=4, n_ctx=8192
)
NONE = Options(split_mode=SplitMode.NONE)


@pytest.mark.parametrize(
    ("field", "options", "facts", "reason"),
    [
        ("cpu_moe", Options(), replace(FACTS, n_expert=0), "This model has no experts."),
        ("n_cpu_moe", Options(), replace(FACTS, n_expert=0), "This model has no experts."),
        (
            "n_cpu_moe",
            Options(cpu_moe=True),
            FACTS,
            "The experts of every layer are there already (-cmoe).",
        ),
        ("main_gpu", Options(), FACTS, "It acts with -sm none, where one GPU takes all layers."),
        (
            "tensor_split",
            Options(),
            replace(FACTS, gpus=("GPU0",)),
            "It needs two GPUs; there is one.",
        ),
        (
            "tensor_split",
            NONE,
            FACTS,
            "It acts where GPUs share the layers: now one takes all of them (-sm none).",
        ),
        (
            "n_copies",
            NONE,
            FACTS,
            "It acts where GPUs share the layers: now one takes all of them (-sm none).",
        ),
        (
            "n_copies",
            Options(split_mode=SplitMode.TENSOR),
            FACTS,
            "It acts with -sm layer, where one GPU can begin the next graph.",
        ),
        (
            "n_copies",
            Options(),
            replace(FACTS, gpus=()),
            "It needs two GPUs; there is none.",
        ),
    ],
)
def test_an_option_without_effect_says_why(field, options, facts, reason):
    assert why_off(field, options, facts) == reason


def test_with_experts_and_two_gpus_every_option_has_an_effect():
    fields = [spec.field for spec in OPTION_SPECS if spec.field != "main_gpu"]

    assert [field for field in fields if why_off(field, Options(), FACTS)] == []
    assert why_off("main_gpu", NONE, FACTS) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3,1", "GPU0 75.0 %, GPU1 25.0 %"),
        ("3/1", "GPU0 75.0 %, GPU1 25.0 %"),
        ("1", "GPU0 100.0 %, GPU1 0.0 %"),
        ("3,", "GPU0 100.0 %, GPU1 0.0 %"),
        ("1,1,2", "GPU0 50.0 %, GPU1 50.0 %; 1 share too many"),
        ("auto", "GPU0 and GPU1 share as their memory is free."),
        ("0,0", "GPU0 and GPU1 share as their memory is free."),
    ],
)
def test_shares_are_named_by_device(text, said):
    assert words(shares_words(text, FACTS.gpus)) == said


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (SplitMode.LAYER, "GPU0 and GPU1 have whole layers each."),
        (SplitMode.ROW, "GPU0 and GPU1 have rows of every matrix of the layers."),
        (
            SplitMode.TENSOR,
            "GPU0 and GPU1 work as one device: each has a share of every layer.",
        ),
    ],
)
def test_a_split_mode_says_what_the_gpus_share(mode, said):
    assert note("split_mode", "", Options(split_mode=mode), FACTS) == said
    assert note("split_mode", "", Options(split_mode=mode), replace(FACTS, gpus=("GPU0",))) == ""


@pytest.mark.parametrize(
    ("n_copies", "obstacle", "said"),
    [
        (4, "", "Pipeline on: up to 4 graphs of a prompt at once."),
        (1, "not every layer is on a device", "Pipeline off: not every layer is on a device."),
    ],
)
def test_whether_there_is_a_pipeline_stands_below_its_option(n_copies, obstacle, said):
    facts = replace(FACTS, n_copies=n_copies, pipeline_obstacle=obstacle)

    assert note("n_copies", "4", Options(), facts) == said


def test_notes_name_devices_and_layers():
    assert note("main_gpu", "0", NONE, FACTS) == "0 is GPU0, 1 is GPU1"
    assert note("devices", "auto", Options(), FACTS) == "There are GPU0, GPU1, CPU."
    assert note("n_cpu_moe", "0", Options(), FACTS) == "of 30 layers"
    assert words(note("n_ctx", "model's", Options(), FACTS)) == "8 192 tokens"


def test_a_tooltip_has_help_flags_default_and_when_a_change_acts():
    for spec in OPTION_SPECS:
        said = tip(spec.field)
        assert spec.help in said
        assert all(flag in said for flag in spec.flags)
        assert "default: " in said
        assert ("applies at the next run" in said) == (spec.redo in (Redo.CONTEXT, Redo.SAMPLER))


def test_a_flag_that_turns_something_off_says_so():
    assert "Off is --no-mmap; default: on." in tip("mmap")
    assert "On is -cmoe, --cpu-moe; default: off." in tip("cpu_moe")
