from dataclasses import replace

from engine.core.device_text import device_facts, device_text
from engine.core.devices import DeviceCaps
from tests.app.models.device_facts import CPU, OPENCL, SLOW


def words(device):
    return "\n".join(f"{title}: {text}" for title, text in device_facts(device))


def test_memory_is_said_with_how_it_was_obtained():
    assert "memory: 12,288.00 MiB free (what the driver says) of 12,288.00 MiB" in words(OPENCL)
    assert "memory: none reported" in words(SLOW)


def test_a_buffer_types_limits_are_said():
    assert (
        "buffer type: OpenCL0 (default): aligned to 128 bytes, at most 8,192.00 MiB at once"
        in words(OPENCL)
    )


def test_features_of_one_are_names_and_others_have_their_value():
    assert "features: AVX2, LANES = 8" in words(SLOW)


def test_what_it_can_is_said_and_a_dash_where_it_can_nothing():
    unable = replace(CPU, caps=DeviceCaps(mmap_support=False))

    assert "can: events, mapped files" in words(CPU)
    assert "can: \u2013" in words(unable)


def test_how_it_got_here_goes_on_without_a_title():
    lines = device_text(CPU).split("\n")

    assert lines[0] == "CPU"
    start = next(i for i, line in enumerate(lines) if "how it got here" in line)
    assert lines[start].endswith("static, from engine.backends.cpu.reg")
    assert lines[start + 1] == (
        f"{'':<19}option --backends cpu, by default on; decided by: default"
    )


def test_a_device_on_paper_has_no_origin():
    assert "how it got here" not in words(replace(CPU, origin=None))
