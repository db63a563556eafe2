"""The registry: families in order, devices by name, and what is absent."""

import pytest

from engine.backend.interface import API_VERSION
from engine.backend.registry import Registry
from engine.backends.null.reg import NullReg
from engine.backends.null.virtual import parse_virtual
from engine.core.devices import Unavailable
from engine.errors import DeviceError


def family(*lines: str) -> NullReg:
    return NullReg([parse_virtual(line) for line in lines])


@pytest.fixture
def registry():
    made = Registry()
    made.register(family("GPU0:gpu:1", "GPU1:gpu:1"))
    made.register(family("CPU:cpu:1"))
    return made


def test_devices_stand_in_the_order_of_registration(registry):
    assert [device.facts.name for device in registry.devices()] == ["GPU0", "GPU1", "CPU"]


def test_a_device_is_found_by_name_whatever_its_capitals(registry):
    assert registry.device("gpu1").facts.name == "GPU1"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("GPU7", "Did you mean GPU1?"), ("vulkan", "There are GPU0, GPU1, CPU.")],
)
def test_an_unknown_name_is_answered_with_those_that_exist(registry, name, hint):
    with pytest.raises(DeviceError) as caught:
        registry.device(name)

    assert (caught.value.title, caught.value.hint) == (f"There is no device {name}.", hint)


def test_without_devices_the_hint_says_so():
    with pytest.raises(DeviceError) as caught:
        Registry().device("GPU0")

    assert caught.value.hint == "There are none."


def test_a_family_is_registered_once(registry):
    with pytest.raises(AssertionError, match="registered already"):
        registry.register(registry.regs()[0])


def test_another_version_of_the_contract_is_refused(registry):
    old = family("GPU9:gpu:1")
    old.api_version = API_VERSION - 1

    with pytest.raises(DeviceError) as caught:
        registry.register(old)

    assert caught.value.title == "The backend NULL cannot be used."
    assert f"version {API_VERSION - 1} of the contract, this is {API_VERSION}" in str(caught.value)
    assert old not in registry.regs()


def test_a_family_that_leaves_takes_its_devices_with_it(registry):
    registry.unregister(registry.regs()[0])

    assert [device.facts.name for device in registry.devices()] == ["CPU"]


def test_what_is_absent_is_told_with_its_reason(registry):
    absent = Unavailable("OpenCL", "pyopencl is missing", "Install it.")
    hidden = Unavailable("CPU1", "the same CPU twice", hidden=True)
    registry.add_absent(absent)
    registry.regs()[0].unavailable = lambda: (hidden,)

    assert registry.unavailable() == (absent, hidden)
