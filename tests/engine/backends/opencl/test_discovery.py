"""Which devices are used, which are hidden, and what people are told; platforms written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backends.opencl.discovery import (
    FoundDevice,
    Verdict,
    hardware_name,
    platform_rank,
    select,
)
from engine.backends.opencl.reg import number_in

ROOT = Path(__file__).parents[4]

DEBIAN = FoundDevice(
    "Portable Computing Language",
    "OpenCL 3.0 PoCL 3.1+debian  Linux, None+Asserts, LLVM 15.0.6",
    "pthread-skylake-avx512-Intel(R) Xeon(R) Processor",
    is_cpu=True,
)
WHEEL = FoundDevice(
    "Portable Computing Language",
    "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, LLVM 14.0.6",
    "pthread-Intel(R) Xeon(R) Processor",
    is_cpu=True,
)
CARD = FoundDevice("NVIDIA CUDA", "OpenCL 3.0 CUDA 12.4.131", "NVIDIA H200", is_cpu=False)


def sound(device: FoundDevice) -> Verdict:
    return Verdict()


def test_the_same_cpu_through_an_older_platform_is_hidden_with_the_reason():
    usable, left_out = select([WHEEL, DEBIAN], sound)

    assert usable == (DEBIAN,)
    (hidden,) = left_out
    assert hidden.hidden
    assert hidden.reason == "the same CPU through PoCL 3.0"


def test_a_hidden_device_is_not_even_checked():
    checked = []

    select([WHEEL, DEBIAN], lambda device: checked.append(device) or Verdict())

    assert checked == [DEBIAN]


def test_an_older_platform_steps_in_when_the_newer_one_fails_its_check():
    usable, left_out = select(
        [WHEEL, DEBIAN],
        lambda device: Verdict("it computed wrong" if device is DEBIAN else ""),
    )

    assert usable == (WHEEL,)
    (failed,) = left_out
    assert failed.reason == "it computed wrong"
    assert not failed.hidden


@pytest.mark.parametrize(
    ("shares_memory", "no_mapping", "maps_files"),
    [(True, "", True), (True, "it read a mapped file wrong", False), (False, "", False)],
)
def test_a_device_maps_files_where_it_shares_memory_and_read_one_right(
    shares_memory, no_mapping, maps_files
):
    found = replace(DEBIAN, shares_memory=shares_memory)

    ((usable,), _) = select([found], lambda device: Verdict(no_mapping=no_mapping))

    assert usable.maps_files is maps_files


def test_the_description_says_why_weights_are_copied_to_a_device_that_shares_memory():
    found = replace(DEBIAN, shares_memory=True, no_mapping="it read a mapped file wrong")

    assert found.description.endswith("; weights are copied, as it read a mapped file wrong")


def test_a_card_is_never_taken_for_a_cpu():
    usable, left_out = select([WHEEL, CARD, DEBIAN], sound)

    assert set(usable) == {CARD, DEBIAN}
    assert len(left_out) == 1


def test_two_cpu_devices_of_one_platform_are_both_used():
    usable, left_out = select([DEBIAN, DEBIAN], sound)

    assert usable == (DEBIAN, DEBIAN)
    assert left_out == ()


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("OpenCL 3.0 PoCL 3.1+debian", "OpenCL 3.0 PoCL 3.0-rc2"),
        ("OpenCL 3.1 LINUX", "OpenCL 3.0 PoCL 6.0"),
        ("OpenCL 3.0 PoCL 10.0", "OpenCL 3.0 PoCL 9.2"),
    ],
)
def test_platforms_are_ordered_by_their_numbers(newer, older):
    assert platform_rank(newer) > platform_rank(older)


@pytest.mark.parametrize(
    ("device_name", "shown"),
    [
        ("pthread-skylake-avx512-Intel(R) Xeon(R) Processor", "Intel Xeon Processor"),
        ("pthread-Intel(R) Xeon(R) Processor", "Intel Xeon Processor"),
        ("pthread-znver4-AMD EPYC 9R14", "AMD EPYC 9R14"),
        ("cpu-haswell-AMD EPYC 9R14", "AMD EPYC 9R14"),
        ("NVIDIA H200", "NVIDIA H200"),
    ],
)
def test_device_names_are_cleaned_for_people(device_name, shown):
    assert hardware_name(device_name) == shown


def test_the_description_names_driver_and_hardware():
    assert DEBIAN.description == "PoCL 3.1, Intel Xeon Processor"
    assert CARD.description == "NVIDIA CUDA, NVIDIA H200"


def in_a_process(code: str, **environment: str) -> str:
    """What `code` prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
    )
    return done.stdout


def test_without_a_driver_the_family_says_what_to_install(tmp_path):
    pytest.importorskip("pyopencl")
    import pyopencl

    if any((Path(pyopencl.__file__).parent / ".libs").glob("*.icd")):
        pytest.skip("an environment without drivers: this pyopencl brings its own")

    printed = in_a_process(
        "from engine.backends.opencl.reg import create\n"
        "reg = create()\n"
        "(missing,) = reg.unavailable()\n"
        "print(reg.devices(), missing.name, missing.reason, missing.hint, sep='|')",
        OCL_ICD_VENDORS=str(tmp_path),
    )

    devices, name, reason, hint = printed.strip().split("|")
    assert devices == "()"
    assert name == "OpenCL"
    assert reason == "no OpenCL platform found"
    assert "apt install pocl-opencl-icd" in hint
    assert "'.[pocl]'" in hint


def test_a_missing_pyopencl_is_a_state_too():
    printed = in_a_process(
        "import sys\n"
        "sys.modules['pyopencl'] = None\n"
        "from engine.backends.opencl.reg import create\n"
        "(missing,) = create().unavailable()\n"
        "print(missing.reason)"
    )

    assert printed.startswith("pyopencl cannot be loaded")


@pytest.mark.parametrize(("text", "wanted"), [("", 32), ("7", 7), (" 8 ", 8), ("0", 0)])
def test_a_number_in_the_environment_is_taken(monkeypatch, text, wanted):
    monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", text)

    assert number_in("GGML_OP_OFFLOAD_MIN_BATCH", 32) == (wanted, ())


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "99999999999", "\u00b2"])
def test_what_is_no_number_there_is_said_among_what_is_not_available(monkeypatch, text):
    monkeypatch.setenv("SPLITSCOPE_OPENCL_PARTS", text)

    n_parts, (fault,) = number_in("SPLITSCOPE_OPENCL_PARTS", 1, low=1)

    assert n_parts == 1
    assert fault.name == f"SPLITSCOPE_OPENCL_PARTS={text}"
    assert fault.reason == "it must be a whole number from 1 to 999999999"
    assert fault.hint == "It is taken as 1."


def test_importing_the_family_loads_no_driver():
    printed = in_a_process(
        "import sys\nimport engine.backends.opencl.reg\nprint('pyopencl' in sys.modules)"
    )

    assert printed.strip() == "False"


@pytest.mark.gpu
def test_two_devices_of_one_platform_copy_without_the_host(device):
    if "PoCL" not in device.facts.description:
        pytest.skip("PoCL: only it makes two devices of one CPU")

    printed = in_a_process(
        "import numpy as np\n"
        "from engine.backend.interface import Place\n"
        "from engine.backends.opencl.reg import create\n"
        "first, second = create().devices()[:2]\n"
        "streams = [d.init_backend() for d in (first, second)]\n"
        "source, target = (d.buffer_type().alloc_buffer(256) for d in (first, second))\n"
        "data, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)\n"
        "streams[0].set_tensor_async(Place(source, 0), data)\n"
        "copy = streams[1].cpy_tensor_async(\n"
        "    streams[0], Place(source, 0), Place(target, 0), 256)\n"
        "streams[1].get_tensor_async(Place(target, 0), out)\n"
        "for stream in streams: stream.synchronize()\n"
        "print(first.name, second.name, copy is not None, np.array_equal(out, data))",
        POCL_DEVICES="pthread pthread",
    )

    assert printed.split() == ["OpenCL0", "OpenCL1", "True", "True"]
