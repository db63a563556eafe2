"""Which built-in backends a person chose, and where that was said."""

import pytest

from engine.backends.choice import choose_backends
from engine.errors import DeviceError

KNOWN = ("opencl", "blas", "cpu")


@pytest.fixture
def settings(tmp_path):
    """Return a function that writes a settings file."""
    file = tmp_path / "settings.ini"

    def write(text: str):
        file.write_text(text)
        return file

    return write


def choose(typed=None, environment=None, settings=None):
    return choose_backends(typed, KNOWN, environment or {}, settings)


def test_all_are_chosen_when_nobody_says_otherwise(tmp_path):
    choice = choose(settings=tmp_path / "none.ini")

    assert choice.by == "default"
    assert all(choice.takes(name) for name in KNOWN)


def test_the_command_line_weighs_more_than_the_environment_and_that_more_than_settings(settings):
    file = settings("[General]\nbackends=opencl\n")
    environment = {"SPLITSCOPE_BACKENDS": "blas"}

    chosen = [choose("cpu", environment, file), choose(None, environment, file)]
    chosen.append(choose(None, {}, file))

    assert [(c.names, c.by) for c in chosen] == [
        ({"cpu"}, "--backends"),
        ({"blas"}, "SPLITSCOPE_BACKENDS"),
        ({"opencl"}, "the settings file"),
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("OpenCL, cpu", {"opencl", "cpu"}),
        ("cpu,", {"cpu"}),
        ("none", set()),
        ("all", None),
        ("cpu,all", None),
    ],
)
def test_a_list_is_read_as_people_type_it(text, names):
    assert choose(text).names == names


def test_an_unknown_name_on_the_command_line_is_refused_with_what_is_near():
    with pytest.raises(DeviceError) as caught:
        choose("openlc,cpu")

    assert caught.value.title == "There is no built-in backend openlc."
    assert caught.value.hint == "Did you mean opencl?"


def test_an_unknown_name_elsewhere_is_noted_and_stops_nothing(settings):
    choice = choose(None, {}, settings("[General]\nbackends=cuda,cpu\n"))

    (noted,) = choice.unknown(KNOWN)
    assert choice.takes("cpu")
    assert noted.name == "cuda"
    assert noted.reason == "the settings file names it, and no built-in backend is called so"


@pytest.mark.parametrize("line", ['backends="blas,cpu"', "backends=blas, cpu"])
def test_the_file_is_read_as_the_window_writes_it_and_as_people_do(settings, line):
    text = f'[General]\nrecent="[{{}}]"\ngeometry=@ByteArray(\\x1\\xd9%)\n{line}\n[window]\nx=1\n'

    assert choose(None, {}, settings(text)).names == {"blas", "cpu"}


@pytest.mark.parametrize("text", ["no section\n", "[General]\nbackends\n", "[Other]\nbackends=x\n"])
def test_a_file_that_says_nothing_of_it_changes_nothing(settings, text):
    assert choose(None, {}, settings(text)).names is None


def test_a_file_that_is_no_text_changes_nothing(tmp_path):
    file = tmp_path / "settings.ini"
    file.write_bytes(b"[General]\nbackends=\xff\xfe\n")

    assert choose(None, {}, file).names is None
