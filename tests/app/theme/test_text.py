"""Numbers as words."""

import pytest

from app.theme.text import (
    MINUS,
    SPACE,
    THIN,
    bytes_text,
    count,
    duration_text,
    mib,
    percent_text,
    plural,
    rate_text,
    sentence,
    signed,
)


def plain(text: str) -> str:
    """Ordinary spaces and hyphens, so that cases can be read."""
    return text.replace(THIN, " ").replace(SPACE, " ").replace(MINUS, "-")


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (5650, "5.5 KiB"),
        (540 * 1024, "540 KiB"),
        (100_200_000, "95.56 MiB"),
        (14_388_000_000, "13.4 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_take_the_unit_that_fits(n, words):
    assert plain(bytes_text(n)) == words


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (850, "850 ns"),
        (2_500, "2.5 µs"),
        (22_000, "22 µs"),
        (3_340_000, "3.34 ms"),
        (433_300_000, "433.3 ms"),
        (1_167_400_000, "1.17 s"),
        (125 * 10**9, "2 min 5 s"),
    ],
)
def test_times_take_the_unit_that_fits(ns, words):
    assert plain(duration_text(ns)) == words


def test_thousands_are_grouped_with_a_space_that_does_not_break():
    assert count(1152) == f"1{THIN}152"
    assert plain(mib(13_824 * 2**20)) == "13 824"
    assert plain(mib(100_200_000)) == "95.56"


def test_a_change_carries_its_sign_and_none_is_plain_zero():
    assert plain(signed(-319)) == "-319"
    assert plain(signed(11.25, 2)) == "+11.25"
    assert signed(0) == signed(0.001, 2) == signed(-0.001, 2) == "0"


def test_a_speed_that_was_not_measured_is_a_dash_and_never_zero():
    assert plain(rate_text(168.5)) == "168.5 tok/s"
    assert rate_text(0) == "\u2013"


def test_one_thing_is_singular():
    assert plural(1, "split") == "1 split"
    assert plain(plural(1321, "split")) == "1 321 splits"


def test_a_share_is_shown_with_one_decimal():
    assert plain(percent_text(0.95)) == "95.0 %"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("", ""),
        ("no driver was found", "No driver was found."),
        ("it is there.", "It is there."),
        ("libcuda.so: cannot open\n shared object", "libcuda.so: cannot open shared object."),
        ("SIGABRT ended it", "SIGABRT ended it."),
    ],
)
def test_a_reason_becomes_a_sentence_and_a_name_keeps_its_start(reason, words):
    assert sentence(reason) == words
