"""Options: one table for the command line, the window and "copy command"."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.options import (
    CACHE_TYPES,
    DEFAULTS,
    OPTION_SPECS,
    SPEC_BY_FIELD,
    FlashAttn,
    LayerRule,
    Options,
    Redo,
    SplitMode,
    TensorOverride,
    checked,
    redo_of,
)
from engine.errors import PlacementError

SHARES = "It must be shares from 0 to 1e+30 with commas between them."
PAIRS = "It must be a pattern, = and a buffer type, with commas between pairs."
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
        ("tensor_split", "3,1", (3.0, 1.0)),
        ("tensor_split", "0.5/ 2", (0.5, 2.0)),
        ("tensor_overrides", "a.*=CPU,b=RPC0[h:1]", (("a.*", "CPU"), ("b", "RPC0[h:1]"))),
        ("tensor_overrides", "a=b=c", (("a", "b=c"),)),
        ("cache_type_k", "q8_0", "q8_0"),
        ("layer_rule", "output-last", LayerRule.OUTPUT_LAST),
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
        (
            "split_mode",
            "rows",
            "-sm cannot be rows.",
            "It must be one of none, layer, row, tensor.",
        ),
        ("main_gpu", "", "-mg cannot be empty.", "It must be a whole number."),
        (
            "split_mode",
            " ",
            "-sm cannot be empty.",
            "It must be one of none, layer, row, tensor.",
        ),
        ("main_gpu", "-2", "-mg cannot be -2.", "It must be at least -1."),
        ("tensor_split", "3,x", "-ts cannot be 3,x.", SHARES),
        ("tensor_split", "3,,1", "-ts cannot be 3,,1.", SHARES),
        ("tensor_split", "-1", "-ts cannot be -1.", SHARES),
        ("tensor_split", "inf", "-ts cannot be inf.", SHARES),
        ("tensor_split", "1e39,1", "-ts cannot be 1e+39,1.", SHARES),
        ("tensor_overrides", "ffn", "-ot cannot be ffn=.", PAIRS),
        ("tensor_overrides", "", "-ot cannot be empty.", PAIRS),
        (
            "cache_type_v",
            "f64",
            "-ctv cannot be f64.",
            f"It must be one of {', '.join(CACHE_TYPES)}.",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, text, title, sentence):
    with pytest.raises(PlacementError) as caught:
        SPEC_BY_FIELD[name].parse(text)

    assert (caught.value.title, caught.value.sentence) == (title, sentence)
    assert caught.value.hint == SPEC_BY_FIELD[name].help


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("blk\\.(", "missing ), unterminated subpattern at position 5"),
        ("x{99999999999999}", "the repetition number is too large"),
        ("(" * 2000 + ")" * 2000, "too many brackets are in one another"),
        ("[[:digit:]]", "Possible nested set at position 1"),
    ],
    ids=["open bracket", "many times", "deep", "read otherwise by llama.cpp"],
)
def test_a_pattern_that_cannot_be_used_is_named_with_its_fault(pattern, fault):
    with pytest.raises(PlacementError) as caught:
        Options(tensor_overrides=(("a", "CPU"), (pattern, "CPU")))

    assert caught.value.title == f"-ot cannot look for {pattern}."
    assert caught.value.sentence == f"It cannot be used as a regular expression: {fault}."


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
        ({"tensor_split": None}, SHARES),
        ({"tensor_split": ["1"]}, SHARES),
        ({"tensor_overrides": ["ffn=CPU"]}, PAIRS),
        ({"tensor_overrides": [("ffn", "")]}, PAIRS),
        ({"tensor_overrides": [("a,b", "CPU")]}, PAIRS),
        ({"tensor_overrides": [("a=b", "CPU")]}, PAIRS),
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
        (Options(tensor_split=(3, 0.5)), ["-ts", "3,0.5"]),
        (
            Options(tensor_overrides=(TensorOverride("a", "CPU"), TensorOverride("b", "G"))),
            ["-ot", "a=CPU,b=G"],
        ),
        (
            Options(cpu_moe=True, n_cpu_moe=2, offload_kqv=False, repack=False, mmap=False),
            ["-cmoe", "-ncmoe", "2", "-nkvo", "-nr", "--no-mmap"],
        ),
        (Options(host_buffer=False, split_mode=SplitMode.NONE), ["-sm", "none", "--no-host"]),
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
        is_flag = spec.kind is bool
        value = not getattr(DEFAULTS, spec.field) if is_flag else spec.parse(next(words))
        options = replace(options, **{spec.field: value})
    return options


def values_of(spec):
    """Any value an option can have."""
    if spec.kind is bool:
        return st.booleans()
    if spec.item is float:
        return st.lists(st.floats(0, 1e30), min_size=1, max_size=3).map(tuple)
    if spec.item is TensorOverride:
        pairs = st.tuples(st.sampled_from(("ffn", r"blk\.1\.", "(a|b)$")), st.just("CPU"))
        return st.lists(pairs, min_size=1, max_size=3).map(tuple)
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
