"""Devices on paper from one line: every key, and every way to get it wrong."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.null.costs import usual_speed
from engine.backends.null.presets import MIB, PRESETS
from engine.backends.null.virtual import KEYS, parse_paper
from engine.core import build
from engine.core.devices import BufferFacts, BufferTypeFacts, DeviceFacts, DeviceType
from engine.core.repack import CPU_REPACK
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError
from tests.engine.paper import parse_virtual

HOST = BufferTypeFacts("CPU", is_host=True)


def matmul(rows=32):
    w, x = (Tensor(TensorType.F32, (64, n, 1, 1)) for n in (8, rows))
    return build.mul_mat(w, x)


def repacked():
    weight = Tensor(TensorType.Q4_0, (64, 8, 1, 1), buffer=BufferFacts(CPU_REPACK))
    return build.mul_mat(weight, Tensor(TensorType.F32, (64, 4, 1, 1)))


def test_name_type_and_free_memory():
    facts = parse_virtual("GPU0:gpu:8192")

    assert (facts.name, facts.type, facts.reg) == ("GPU0", DeviceType.GPU, "NULL")
    assert facts.memory_free == facts.memory_total == 8192 * MIB


@pytest.mark.parametrize("key", ["gbps", "gflops", "link"])
def test_speeds_may_be_decimals(key):
    speed = parse_paper(f"G:gpu:1:{key}=0.125").speed

    field = {"link": "link_gbps"}.get(key, key)
    assert speed == replace(usual_speed(parse_virtual("G:gpu:1")), **{field: 0.125})


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("link", "0", "GB/s"), ("gbps", "0.0001", "GB/s"), ("gflops", "fast", "GFLOP/s"),
        ("link", "1e3", "GB/s"), ("link", "-1", "GB/s"), ("gbps", "1.", "GB/s"),
        ("gflops", "12345678901234", "GFLOP/s"), ("link", "\u0663", "GB/s"),
    ],
)  # fmt: skip
def test_a_speed_that_is_none_is_refused_with_its_unit(key, value, unit):
    with pytest.raises(PlacementError) as caught:
        parse_paper(f"G:gpu:1:{key}={value}")

    assert f"The key {key} is {value}; it must be a number of {unit}" in caught.value.sentence


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(PlacementError, match="It has the key link twice: 1 and 2"):
        parse_paper("G:gpu:1:link=1,gbps=3,link=2")


@pytest.mark.parametrize(
    ("word", "device_type"),
    [("gpu", DeviceType.GPU), ("IGPU", DeviceType.IGPU), ("accel", DeviceType.ACCEL),
     ("Cpu", DeviceType.CPU)],
)  # fmt: skip
def test_types(word, device_type):
    assert parse_virtual(f"D:{word}:1").type is device_type


def test_a_cpu_reads_all_host_memory():
    rules = parse_virtual("CPU:cpu:1").rules

    assert rules.supports_buft(BufferTypeFacts("CUDA_Host", is_host=True))


@pytest.mark.parametrize(
    ("line", "what", "expected"),
    [
        ("G:gpu:1:buft=X", lambda f: f.buft.name, "X"),
        ("G:gpu:1:buft=X", lambda f: f.rules.supports_buft(f.buft), True),
        ("G:gpu:1:align=256", lambda f: f.buft.alignment, 256),
        ("G:gpu:1:max=1000", lambda f: f.buft.max_bytes, 1000),
        ("G:gpu:1:preset=vulkan,max=0", lambda f: f.buft.max_bytes, None),
        ("G:gpu:1:host=1", lambda f: f.buft.is_host, True),
        ("G:gpu:1:async=1", lambda f: f.caps.asynchronous, True),
        ("G:gpu:1:preset=cuda,async=0", lambda f: f.caps.asynchronous, False),
        ("G:gpu:1:events=1", lambda f: f.caps.events, True),
        ("G:gpu:1:mmap=0", lambda f: f.caps.mmap_support, False),
        ("G:gpu:1:cpyasync=1", lambda f: f.copies_async, True),
        ("G:gpu:1:preset=cuda,cpyasync=0", lambda f: f.copies_async, False),
        ("G:gpu:1:split=1", lambda f: f.splits_rows, True),
        ("G:gpu:1:hostbuft=P", lambda f: (f.host_buft.name, f.host_buft.is_host), ("P", True)),
        ("G:gpu:1:hostbuft=P", lambda f: f.caps.host_buffer, True),
        ("G:gpu:1:offload=32", lambda f: f.rules.offload_op(matmul(32)), True),
        ("G:gpu:1:offload=33", lambda f: f.rules.offload_op(matmul(32)), False),
        ("G:gpu:1:preset=cuda,offload=0", lambda f: f.rules.offload_op(matmul(512)), False),
        ("G:gpu:1:ops=ADD+MUL", lambda f: f.rules.supports_op(matmul()), False),
        ("G:gpu:1:ops=ADD+MUL_MAT", lambda f: f.rules.supports_op(matmul()), True),
        ("G:gpu:1:ops=*", lambda f: f.rules.supports_op(matmul()), True),
        ("G:gpu:1:noops=ADD+MUL_MAT", lambda f: f.rules.supports_op(matmul()), False),
        ("R:gpu:1:preset=rpc,buft=R[host:1]", lambda f: f.stream_name, "R[host:1]"),
        ("G:gpu:1:buft=X", lambda f: f.stream_name, "G"),
        ("G:gpu:1:", lambda f: f.name, "G"),
        ("C:cpu:1:features=AVX2+FMA", lambda f: f.features, {"AVX2", "FMA"}),
        ("C:cpu:1:features=AVX2", lambda f: f.rules.supports_op(repacked()), True),
        ("C:cpu:1:features=none", lambda f: f.rules.supports_op(repacked()), False),
    ],
)
def test_every_key_sets_what_it_names(line, what, expected):
    assert what(parse_virtual(line)) == expected


@pytest.mark.parametrize(
    ("line", "field"),
    [("G:gpu:1:gbps=7", "gbps"), ("G:gpu:1:gflops=7", "gflops"), ("G:gpu:1:link=7", "link_gbps")],
)
def test_a_key_of_speed_changes_that_and_nothing_else(line, field):
    device = parse_paper(line)

    assert device.speed == replace(usual_speed(device.facts), **{field: 7})
    assert device.facts == parse_virtual("G:gpu:1")


def test_every_key_is_tried_above():
    tests = (test_every_key_sets_what_it_names, test_a_key_of_speed_changes_that_and_nothing_else)
    rows = [row for test in tests for row in test.pytestmark[0].args[1]]
    lines = " ".join(line for line, *_ in rows)

    assert [key for key in KEYS if f"{key}=" not in lines] == []


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_keeps_the_name_and_the_memory_of_the_line(preset):
    facts = parse_virtual(f"D7:gpu:5:preset={preset}")

    assert isinstance(facts, DeviceFacts)
    assert (facts.name, facts.memory_free, facts.type) == ("D7", 5 * MIB, DeviceType.GPU)


@pytest.mark.parametrize(
    ("preset", "offloads", "pinned", "events", "mmap", "copies"),
    [
        ("plain", False, None, False, True, False),
        ("rpc", False, None, True, True, False),
        ("cuda", True, "CUDA_Host", True, True, True),
        ("vulkan", True, "Vulkan_Host", True, True, False),
        ("cpu", False, None, False, True, False),
        ("blas", False, None, False, True, False),
    ],
)
def test_presets_have_the_facts_of_the_real_backends(
    preset, offloads, pinned, events, mmap, copies
):
    facts = parse_virtual(f"D:gpu:1:preset={preset}")

    assert facts.rules.offload_op(matmul()) is offloads
    assert (facts.host_buft and facts.host_buft.name) == pinned
    assert facts.caps.events is events
    assert facts.caps.mmap_support is mmap
    assert facts.copies_async is copies
    assert facts.rules.supports_buft(facts.buft)


NUMBER = "whole number of at most 13 digits"
KEY_VALUE = f"key=value with a key of {', '.join(KEYS)}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("GPU0", "It needs a name, a type and free MiB."),
        ("GPU0:gpu", "It needs a name, a type and free MiB."),
        (":gpu:1", "It needs a name, a type and free MiB."),
        ("", "It needs a name, a type and free MiB."),
        ("GPU0:tpu:1", "The type is tpu; allowed are gpu, igpu, accel, cpu."),
        ("GPU0:gpu:many", f"The free memory is many; it must be a {NUMBER} of MiB."),
        ("GPU0:gpu:-1", f"The free memory is -1; it must be a {NUMBER} of MiB."),
        ("GPU0:gpu:\u00b2", f"The free memory is \u00b2; it must be a {NUMBER} of MiB."),
        ("GPU0:gpu:" + "9" * 14, f"The free memory is {'9' * 14}; it must be a {NUMBER} of MiB."),
        ("GPU0:gpu:1:features=AVX2", "It has the key features, which only a CPU has."),
        ("GPU0:gpu:1:colour=red", f"It has colour=red; allowed is {KEY_VALUE}."),
        ("GPU0:gpu:1:align", f"It has align; allowed is {KEY_VALUE}."),
        ("GPU0:gpu:1:align=", f"It has align=; allowed is {KEY_VALUE}."),
        ("GPU0:gpu:1:preset=tpu", f"The preset is tpu; allowed are {', '.join(PRESETS)}."),
        ("GPU0:gpu:1:align=48", "The key align is 48; it must be a power of two."),
        ("GPU0:gpu:1:align=0", "The key align is 0; it must be a power of two."),
        ("GPU0:gpu:1:offload=yes", f"The key offload is yes; it must be a {NUMBER}."),
        ("CPU:cpu:1:split=1", "It has the key split, which only a GPU has."),
        ("GPU0:gpu:1:max=\u00b2", f"The key max is \u00b2; it must be a {NUMBER}."),
        ("GPU0:gpu:1:max=" + "9" * 5000, f"The key max is {'9' * 5000}; it must be a {NUMBER}."),
    ],
)
def test_a_wrong_line_is_refused_with_the_part_that_is_wrong(line, sentence):
    with pytest.raises(PlacementError) as caught:
        parse_virtual(line)

    assert caught.value.title == f"The device {line!r} cannot be read."
    assert caught.value.sentence == sentence
    assert caught.value.hint == "For example GPU0:gpu:8192:preset=cuda"


WORDS = st.sampled_from(
    ("GPU0", "gpu", "cpu", ":", "=", ",", "1", "8192", "preset", "cuda", "buft", "max", "\u0661")
)


@given(st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=14).map("".join)))
def test_any_text_gives_facts_or_a_refusal(text):
    try:
        facts = parse_virtual(text)
    except PlacementError:
        return

    assert facts.name
    assert facts.memory_free >= 0
