"""Keys are read and checked, one by one: a fault names its key, what was found, what is allowed."""

import numpy as np
import pytest

from engine.errors import ModelError
from engine.gguf.reader import open_gguf
from engine.gguf.writer import header_bytes
from engine.model.arch_keys import LARGEST, ArchKeys, architecture


@pytest.fixture
def keys_with(tmp_path):
    opened = []

    def make(**values):
        path = tmp_path / f"keys{len(opened)}.gguf"
        metadata = {"general.architecture": "toy", **{f"toy.{k}": v for k, v in values.items()}}
        path.write_bytes(header_bytes(metadata, []))
        opened.append(open_gguf(path))
        return ArchKeys(opened[-1])

    yield make
    for file in opened:
        file.close()


def refusal(read, *args, **kwargs):
    with pytest.raises(ModelError) as caught:
        read(*args, **kwargs)
    return caught.value.title, caught.value.sentence


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({}, "missing"),
        ({"general.architecture": ""}, "''; it must be a name"),
        ({"general.architecture": 7}, "7; it must be a name"),
    ],
)
def test_a_file_must_name_its_architecture(metadata, found):
    assert refusal(architecture, metadata) == (
        "The file does not say which architecture it is.",
        f"The key general.architecture is {found}.",
    )


def test_a_count_without_a_default_must_be_there(keys_with):
    assert refusal(keys_with().count, "n") == (
        "The key toy.n cannot be used.", "It is missing; it must be present.",
    )  # fmt: skip


@pytest.mark.parametrize("value", [0, LARGEST + 1, "4", True, 4.0])
def test_a_count_is_a_whole_number_within_bounds(keys_with, value):
    title, sentence = refusal(keys_with(n=value).count, "n")

    assert title == "The key toy.n cannot be used."
    assert sentence == f"It is {value}; it must be a whole number from 1 to {LARGEST}."


def test_one_number_stands_for_every_layer(keys_with):
    assert keys_with(n=7).counts("n", 3) == (7, 7, 7)


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.int8])
def test_a_file_may_give_a_number_for_each_layer(keys_with, dtype):
    found = keys_with(n=np.array([4, 8, 1], dtype)).counts("n", 3)

    assert found == (4, 8, 1)
    assert {type(n) for n in found} == {int}


def test_defaults_may_differ_by_layer(keys_with):
    assert keys_with().counts("n", 2, (3, 5)) == (3, 5)


def test_an_array_has_one_number_a_layer(keys_with):
    assert refusal(keys_with(n=[1, 2]).counts, "n", 3) == (
        "The key toy.n cannot be used.",
        "It is an array of 2; it must be one value, or 3 of them, one a layer.",
    )


@pytest.mark.parametrize(
    ("values", "found"), [([4, 0, 4], "0 for layer 1"), ([4, 4, 99], "99 for layer 2")]
)
def test_a_wrong_number_in_an_array_is_told_with_its_layer(keys_with, values, found):
    _, sentence = refusal(keys_with(n=values).counts, "n", 3, high=9)

    assert sentence == f"It is {found}; it must be a whole number from 1 to 9."


def test_texts_in_an_array_of_numbers_are_refused(keys_with):
    assert "It is a for layer 0" in refusal(keys_with(n=["a", "b"]).counts, "n", 2)[1]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (4, "4"),
        ([4, 4], "an array of 2"),
        ([4, -1, 4], "4, -1, 4"),
        (["a", "b", "c"], "a, b, c"),
    ],
)
def test_an_array_of_so_many_numbers_is_no_single_one(keys_with, value, found):
    told = refusal(keys_with(n=value).integers, "n", 3)[1]

    assert told == f"It is {found}; it must be an array of 3 whole numbers from 0 on."
    assert keys_with(n=[4, 0, 1]).integers("n", 3) == (4, 0, 1)
    assert keys_with().integers("n", 3, (0, 0, 0)) == (0, 0, 0)


@pytest.mark.parametrize(("value", "found"), [(None, "missing"), (6, "6"), ([1], "an array of 1")])
def test_truth_values_that_must_be_an_array_are_told_as_such(keys_with, value, found):
    keys = keys_with(**({} if value is None else {"slides": value}))

    told = refusal(lambda: keys.layer_flags("slides", 2, required=True))[1]
    assert told == f"It is {found}; it must be an array of 2 values, one a layer."


@pytest.mark.parametrize("values", [[True, False], np.array([1, 0], np.int32)])
def test_truth_values_of_layers_may_be_numbers(keys_with, values):
    assert keys_with(slides=values).layer_flags("slides", 2) == (True, False)


def test_one_number_is_no_array_of_truth_values(keys_with):
    assert keys_with(slides=6).layer_flags("slides", 2) is None
    assert keys_with().layer_flags("slides", 2) is None


def test_truth_values_are_as_many_as_layers(keys_with):
    assert "an array of 2" in refusal(keys_with(slides=[True, False]).layer_flags, "slides", 3)[1]


def test_texts_are_no_truth_values(keys_with):
    assert refusal(keys_with(slides=["yes"]).layer_flags, "slides", 1)[1] == (
        "It is yes for layer 0; it must be true or false."
    )


@pytest.mark.parametrize("value", ["much", True, float("nan"), float("inf")])
def test_a_number_is_finite(keys_with, value):
    assert refusal(keys_with(x=value).number, "x")[1].endswith("it must be a number.")


def test_a_number_may_have_a_lower_bound(keys_with):
    keys = keys_with(x=-0.5)

    assert keys.number("x") == -0.5
    assert refusal(keys.number, "x", low=0.0)[1] == "It is -0.5; it must be at least 0."


@pytest.mark.parametrize("value", [1, "tall"])
def test_a_text_is_one_of_those_that_are_known(keys_with, value):
    _, sentence = refusal(keys_with(size=value).text, "size", "small", choices=("small", "large"))

    assert sentence == f"It is {value}; it must be one of small, large."


def test_a_default_that_cannot_be_used_is_told_as_missing(keys_with):
    assert refusal(keys_with().count, "n", 0)[1].startswith("It is missing;")
    assert refusal(keys_with(n=0).count, "n", 1)[1].startswith("It is 0;")


def test_what_is_missing_has_its_default(keys_with):
    keys = keys_with()

    assert keys.count("n", 5) == 5
    assert keys.number("x", 0.5) == 0.5
    assert keys.text("size", "small", choices=("small",)) == "small"
    assert not keys.has("n")
