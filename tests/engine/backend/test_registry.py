"""The registry: families in order, devices by name, and what is absent."""

from dataclasses import replace

import pytest

from engine.backend.interface import API_VERSION
from engine.backend.registry import Registry
from engine.backends.null.reg import NullReg
from engine.core.devices import Unavailable
from engine.errors import DeviceError
from tests.engine.paper import parse_virtual


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
    regs = registry.regs()

    with pytest.raises(DeviceError) as caught:
        registry.register(regs[0])

    assert caught.value.title == "The backend NULL is registered already."
    assert registry.regs() == regs


def test_the_cpu_is_last_whenever_it_was_registered(registry):
    late = family("GPU2:gpu:1")
    registry.register(late)

    assert [d.facts.name for d in registry.devices()] == ["GPU0", "GPU1", "GPU2", "CPU"]
    assert registry.family(registry.devices()[2]) is late


@pytest.mark.parametrize("line", ["gpu1:gpu:1", "CPU:accel:1"])
def test_a_second_device_of_a_name_is_refused_in_words(registry, line):
    with pytest.raises(DeviceError) as caught:
        registry.register(family("GPU3:gpu:1", line))

    name = line.partition(":")[0]
    assert f"A second device would be called {name}, as one of NULL is" in caught.value.sentence
    assert len(registry.devices()) == 3


def test_two_devices_of_one_family_need_two_names():
    with pytest.raises(DeviceError, match="A second device would be called A"):
        Registry().register(family("A:gpu:1", "A:gpu:1"))


def with_id(device_id: str | None, *lines: str) -> NullReg:
    facts = [replace(parse_virtual(line), device_id=device_id) for line in lines]
    return NullReg(facts)


def test_one_card_of_two_families_is_used_through_the_first():
    registry = Registry()
    registry.register(with_id("0000:01:00.0", "CUDA0:gpu:1"))
    second = with_id("0000:01:00.0", "Vulkan0:gpu:1")
    registry.register(second)

    (hidden,) = registry.unavailable()
    assert [d.facts.name for d in registry.devices()] == ["CUDA0"]
    assert registry.is_hidden(second.devices()[0])
    assert (hidden.name, hidden.hidden) == ("Vulkan0", True)
    assert hidden.reason == "it is the same device as CUDA0 (0000:01:00.0), which is used"


def test_devices_without_an_id_or_of_one_family_are_all_used():
    registry = Registry()
    registry.register(with_id(None, "A:gpu:1"))
    registry.register(with_id(None, "B:gpu:1"))
    registry.register(with_id("x", "C:gpu:1", "D:gpu:1"))

    assert [d.facts.name for d in registry.devices()] == ["A", "B", "C", "D"]
    assert registry.unavailable() == ()


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


class TiredReg(NullReg):
    """Says once which devices it has, and raises from then on."""

    n_left = 1

    def devices(self):
        self.n_left -= 1
        if self.n_left < 0:
            raise RuntimeError("tired")
        return super().devices()


def test_a_family_that_raises_while_it_is_sorted_in_changes_nothing(registry):
    before = registry.regs(), registry.devices()
    tired = TiredReg([parse_virtual("X:gpu:1")])

    with pytest.raises(RuntimeError):
        registry.register(tired)

    assert (registry.regs(), registry.devices()) == before
    registry.unregister(before[0][0])
    assert [device.facts.name for device in registry.devices()] == ["CPU"]


def test_a_family_is_all_hidden_while_others_have_all_its_devices():
    registry = Registry()
    first, second = with_id("x", "A:gpu:1"), with_id("x", "B:gpu:1")
    registry.register(first)
    registry.register(second)
    registry.register(NullReg([]))
    assert [registry.is_all_hidden(reg) for reg in registry.regs()] == [False, True, False]

    registry.unregister(first)

    assert not registry.is_all_hidden(second)
