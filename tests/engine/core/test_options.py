"""Options: one table for the command line, the window and "copy command"."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.options import (
    DEFAULTS,
    OPTION_SPECS,
    SPEC_BY_FIELD,
    FlashAttn,
    Options,
    Redo,
    checked,
    redo_of,
)
from engine.errors import PlacementError

NUMBERS = [spec for spec in OPTION_SPECS if spec.low is not None]


def test_every_option_has_a_row_and_every_row_an_option():
    assert {spec.field for spec in OPTION_SPECS} == {item.name for item in fields(Options)}


def test_no_two_options_share_a_flag():
    flags = [flag for spec in OPTION_SPECS for flag in spec.flags]

    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n_gpu_layers", "12", 12),
        ("n_gpu_layers", "all", -1),
        ("n_gpu_layers", "auto", -1),
        ("temperature", "0.5", 0.5),
        ("flash_attn", "off", FlashAttn.OFF),
        ("devices", "GPU0, GPU1", ("GPU0", "GPU1")),
        ("devices", "none", ()),
        ("seed", "-1", -1),
    ],
)
def test_a_text_stands_for_a_value(name, text, value):
    assert SPEC_BY_FIELD[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "title", "sentence"),
    [
        ("n_gpu_layers", "many", "-ngl cannot be many.", "It must be a whole number, all or auto."),
        ("n_batch", "0", "-b cannot be 0.", "It must be at least 1."),
        ("top_p", "1.5", "--top-p cannot be 1.5.", "It must be at most 1."),
        ("temperature", "nan", "--temp cannot be nan.", "It must be at least 0."),
        ("flash_attn", "maybe", "-fa cannot be maybe.", "It must be one of on, off, auto."),
        ("split_mode", "row", "-sm cannot be row.", "It must be one of layer."),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, text, title, sentence):
    with pytest.raises(PlacementError) as caught:
        SPEC_BY_FIELD[name].parse(text)

    assert (caught.value.title, caught.value.sentence) == (title, sentence)
    assert caught.value.hint == SPEC_BY_FIELD[name].help


@pytest.mark.parametrize("spec", NUMBERS, ids=lambda spec: spec.field)
def test_both_bounds_are_allowed_and_what_lies_beyond_is_not(spec):
    assert spec.check(spec.low) == spec.low
    assert spec.check(spec.high) == spec.high
    for beyond in (spec.low - 1, spec.high + 1):
        with pytest.raises(PlacementError):
            spec.check(beyond)


def test_changes_are_checked():
    assert checked(DEFAULTS, n_ctx=512, devices=None).n_ctx == 512
    with pytest.raises(PlacementError):
        checked(DEFAULTS, n_ctx=-1)


def test_a_word_is_the_member_it_names_and_a_list_a_tuple():
    options = Options(flash_attn="off", split_mode="layer", devices=["GPU0"], temperature=0)

    assert options.flash_attn is FlashAttn.OFF
    assert options == Options(flash_attn=FlashAttn.OFF, devices=("GPU0",), temperature=0.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"flash_attn": "maybe"}, "It must be one of on, off, auto."),
        ({"n_ctx": 2**24 + 1}, "It must be at most 16777216."),
        ({"n_ctx": 1.5}, "It must be a whole number."),
        ({"n_ctx": True}, "It must be a whole number."),
        ({"temperature": "hot"}, "It must be a number."),
        ({"op_offload": 1}, "It must be true or false."),
        ({"devices": "GPU0"}, "It must be a list of names."),
    ],
)
def test_options_hold_nothing_that_is_not_allowed(values, sentence):
    with pytest.raises(PlacementError) as caught:
        Options(**values)

    assert caught.value.sentence == sentence


def test_the_defaults_need_no_arguments():
    assert Options().command_args() == []


@pytest.mark.parametrize(
    ("options", "args"),
    [
        (Options(n_gpu_layers=2), ["-ngl", "2"]),
        (Options(op_offload=False), ["--no-op-offload"]),
        (Options(devices=()), ["-dev", "none"]),
        (Options(devices=("GPU0", "GPU1")), ["-dev", "GPU0,GPU1"]),
        (Options(flash_attn=FlashAttn.ON, n_ctx=512), ["-c", "512", "-fa", "on"]),
        (Options(temperature=0.0), ["--temp", "0.0"]),
    ],
)
def test_what_differs_from_the_defaults_becomes_arguments(options, args):
    assert options.command_args() == args


def parsed(args):
    """Options from arguments, by the table alone."""
    by_flag = {flag: spec for spec in OPTION_SPECS for flag in spec.flags}
    options, words = DEFAULTS, iter(args)
    for flag in words:
        spec = by_flag[flag]
        value = False if spec.kind is bool else spec.parse(next(words))
        options = replace(options, **{spec.field: value})
    return options


def values_of(spec):
    """Any value an option can have."""
    if spec.kind is bool:
        return st.booleans()
    if spec.kind is tuple:
        names = st.lists(st.sampled_from(("GPU0", "GPU1", "BLAS")), max_size=3).map(tuple)
        return st.one_of(st.none(), names)
    if spec.choices:
        return st.sampled_from([spec.kind(choice) for choice in spec.choices])
    if spec.kind is float:
        return st.floats(spec.low, spec.high)
    return st.integers(int(spec.low), int(spec.high))


@given(st.fixed_dictionaries({spec.field: values_of(spec) for spec in OPTION_SPECS}))
def test_arguments_and_options_are_two_forms_of_the_same(values):
    options = replace(DEFAULTS, **{k: v for k, v in values.items() if (k, v) != ("devices", None)})

    assert parsed(options.command_args()) == options


@pytest.mark.parametrize(
    ("changes", "redo"),
    [
        ({}, set()),
        ({"op_offload": False}, {Redo.PLAN}),
        ({"n_ctx": 512, "seed": 1}, {Redo.CONTEXT, Redo.SAMPLER}),
        ({"n_threads": 4}, {Redo.THREADS}),
    ],
)
def test_a_change_says_what_must_be_made_anew(changes, redo):
    assert redo_of(DEFAULTS, replace(DEFAULTS, **changes)) == redo
