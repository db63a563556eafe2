"""A real ggml CPU as a device: facts, names, layers, threads and features."""

import pytest

from engine.backend.interface import API_VERSION
from engine.backends.ggml.names import own_name
from engine.core.devices import DeviceType


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("CPU", "ggml-CPU"),
        ("CPU_REPACK", "ggml-CPU_REPACK"),
        ("BLAS", "ggml-BLAS"),
        ("OpenCL", "ggml-OpenCL"),
        ("AMX", "AMX"),
        ("Vulkan0", "Vulkan0"),
        ("RPC0[127.0.0.1:50052]", "RPC0[127.0.0.1:50052]"),
        ("CPUs of another kind", "CPUs of another kind"),
    ],
)
def test_names_that_built_in_backends_have_are_prefixed(name, own):
    assert own_name(name) == own


def test_a_family_says_what_the_library_says(reg):
    assert reg.name == "ggml-CPU"
    assert reg.api_version == API_VERSION
    assert [device.facts.name for device in reg.devices()] == ["ggml-CPU"]
    assert reg.devices() is reg.devices()


def test_a_cpu_is_an_accelerator_beside_the_built_in_one(device):
    facts = device.facts

    assert facts.type is DeviceType.ACCEL
    assert facts.description
    assert 0 < facts.memory_free <= facts.memory_total
    assert facts.caps.buffer_from_host_ptr
    assert not facts.caps.asynchronous
    assert not facts.caps.events
    assert facts.stream_name == "ggml-CPU"


def test_a_cpu_that_is_named_takes_layers_as_a_gpu_does(device):
    facts = device.facts.taking_layers()

    assert facts.type is DeviceType.GPU
    assert facts.extra_bufts_first
    assert facts.name == "ggml-CPU"
    assert facts.taking_layers().rules is facts.rules


def test_its_memory_has_names_of_its_own(device):
    facts = device.facts
    extra = [buft.name for buft in facts.extra_bufts]

    assert (facts.buft.name, facts.buft.alignment, facts.buft.is_host) == ("ggml-CPU", 32, True)
    assert facts.buft.max_bytes is None
    assert "ggml-CPU_REPACK" in extra
    assert [buft.facts.name for buft in device.extra_buffer_types()] == extra
    assert facts.host_buft is None
    assert device.host_buffer_type() is None


def test_a_device_without_events_gives_none(device):
    assert device.event_new() is None


def test_features_are_those_that_ggml_prints(reg, device):
    features = reg.get_proc_address("ggml_backend_get_features")()

    assert features["REPACK"] == "1"
    assert {name for name, value in features.items() if value == "1"} <= device.facts.features


def test_functions_with_arguments_of_c_are_not_handed_out(reg):
    assert reg.get_proc_address("ggml_threadpool_new") is None
    assert reg.get_proc_address("no such function") is None
