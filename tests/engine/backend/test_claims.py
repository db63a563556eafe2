"""Devices that say of themselves what cannot be."""

from dataclasses import replace

import pytest

from engine.backend.registry import Registry
from engine.backends.null.reg import NullReg
from engine.errors import DeviceError
from tests.engine.paper import parse_virtual


def family(**claims):
    """A family whose one device has these facts in place of its own."""
    reg = NullReg([parse_virtual("GPU0:gpu:1024")])
    (device,) = reg.devices()
    device._facts = replace(device.facts, **claims)
    return reg


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"name": ""}, "a name has no spaces"),
        ({"name": "a b"}, "a name has no spaces"),
        ({"name": "a,b"}, "commas"),
        ({"name": "a=b"}, "equals signs"),
        ({"name": "a\x1b[31m"}, "without a picture"),
        ({"name": 7}, "a name has no spaces"),
        ({"memory_free": "lots"}, "'lots' of .* is no count of bytes"),
        ({"memory_free": -5}, "-5 of .* is no count of bytes"),
        ({"memory_total": float("nan")}, "nan, is no count of bytes"),
        ({"memory_total": 1 << 200}, "is no count of bytes"),
        ({"memory_free": 6, "memory_total": 5}, "6 bytes are free, of 5"),
    ],
)
def test_claims_that_cannot_be_are_refused_in_words(claims, words):
    registry = Registry()

    with pytest.raises(DeviceError, match=words):
        registry.register(family(**claims))

    assert registry.devices() == ()


def test_a_device_without_memory_is_refused():
    reg = family()
    (device,) = reg.devices()
    device.buffer_type = lambda: None

    with pytest.raises(DeviceError, match=r"buffer_type\(\) gives None"):
        Registry().register(reg)


def test_a_device_that_tells_nothing_of_its_memory_is_taken():
    registry = Registry()

    registry.register(family(memory_free=0, memory_total=0))

    assert [device.facts.name for device in registry.devices()] == ["GPU0"]
