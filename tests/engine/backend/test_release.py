"""All of something is given back, whatever one device says."""

import pytest

from engine.backend.release import release_all
from engine.errors import DeviceError


def test_whatever_one_says_all_are_called_in_order():
    called = []

    def give_back(name):
        called.append(name)
        if name in "ac":
            raise DeviceError(f"{name} is lost.")

    with pytest.raises(DeviceError, match="a is lost"):
        release_all(lambda name=name: give_back(name) for name in "abcd")

    assert called == ["a", "b", "c", "d"]


def test_nothing_to_give_back_is_no_error():
    release_all([])
