"""Devices, layers and buffer types: the examples of SCHED.md 6, 7 and 8."""

import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.devices import BufferTypeFacts, DeviceCaps, DeviceType, mapped
from engine.core.options import Options
from engine.errors import PlacementError
from engine.model.placement import (
    MemorySpot,
    backend_views,
    layers_to_devices,
    pipeline_copies,
    pipeline_obstacle,
    place_model,
)
from tests.engine.paper import parse_virtual

CPU = parse_virtual("CPU:cpu:16384")
BLAS = parse_virtual("BLAS:accel:0")


def gpu(name="GPU0", mib=8192, keys="", **facts):
    return replace(parse_virtual(f"{name}:gpu:{mib}:{keys}"), **facts)


def names(devices):
    return [device.name for device in devices]


def layers(devices, n_layer, ngl, cpu=CPU):
    return names(layers_to_devices(devices, cpu, n_layer=n_layer, n_gpu_layers=ngl))


# Layers.


def test_without_devices_every_layer_is_the_cpus():
    assert layers([], 4, 5) == ["CPU"] * 5


def test_the_last_layers_go_first_and_the_output_before_all():
    assert layers([gpu()], 4, 1) == ["CPU"] * 4 + ["GPU0"]
    assert layers([gpu()], 4, 2) == ["CPU"] * 3 + ["GPU0"] * 2


def test_all_layers_and_more_are_all_layers():
    assert layers([gpu()], 4, 5) == layers([gpu()], 4, 99) == ["GPU0"] * 5


def test_none_is_none():
    assert layers([gpu()], 4, 0) == ["CPU"] * 5


def test_four_layers_on_two_equal_devices():
    """0/5, 1/5, 2/5 < 0.5: the first takes layers 0, 1, 2; the second 3 and the output."""
    pair = [gpu("GPU0"), gpu("GPU1")]

    assert layers(pair, 4, 5) == ["GPU0"] * 3 + ["GPU1"] * 2


def test_four_layers_on_devices_three_to_one():
    """0.6 < 0.75 <= 0.8: layers 0 to 3 on the first, the output on the second."""
    pair = [gpu("GPU0", 3000), gpu("GPU1", 1000)]

    assert layers(pair, 4, 5) == ["GPU0"] * 4 + ["GPU1"]


def test_eighteen_layers_on_two_equal_devices():
    pair = [gpu("GPU0"), gpu("GPU1")]

    assert layers(pair, 18, 19) == ["GPU0"] * 10 + ["GPU1"] * 9


def test_only_the_offloaded_layers_are_shared():
    pair = [gpu("GPU0"), gpu("GPU1")]

    assert layers(pair, 4, 2) == ["CPU"] * 3 + ["GPU0", "GPU1"]


def test_a_device_that_reports_nothing_counts_as_much_as_the_cpu():
    pair = [gpu("GPU0", 0), gpu("GPU1", 16384)]

    assert layers(pair, 3, 4) == ["GPU0"] * 2 + ["GPU1"] * 2


def test_a_full_device_gets_no_layers():
    full = gpu("GPU0", 0, memory_total=8 << 30)

    assert layers([full, gpu("GPU1")], 3, 4) == ["GPU1"] * 4


def test_when_nothing_is_known_of_memory_layers_are_shared_equally():
    pair = [gpu("GPU0", 0), gpu("GPU1", 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert layers(pair, 3, 4, parse_virtual("CPU:cpu:0")) == ["GPU0"] * 2 + ["GPU1"] * 2


def test_shares_are_computed_in_float32():
    """T23: a third of 3 GB and 31 bytes is a third in float32, so layer 1 of 3 goes on."""
    pair = [gpu("GPU0", memory_free=10**9 + 31), gpu("GPU1", memory_free=2 * 10**9 - 63)]

    assert layers(pair, 2, 3) == ["GPU0", "GPU1", "GPU1"]


@given(
    st.lists(st.integers(1, 2**20), min_size=1, max_size=4),
    st.integers(1, 60),
    st.integers(0, 70),
)
def test_devices_follow_one_another_over_the_last_layers(free_mib, n_layer, ngl):
    devices = [gpu(f"GPU{i}", mib) for i, mib in enumerate(free_mib)]

    placed = layers(devices, n_layer, ngl)

    n_on_gpus = min(ngl, n_layer + 1)
    assert placed[: n_layer + 1 - n_on_gpus] == ["CPU"] * (n_layer + 1 - n_on_gpus)
    offloaded = placed[n_layer + 1 - n_on_gpus :]
    assert "CPU" not in offloaded
    assert offloaded == sorted(offloaded)


# A placement.


def test_a_model_needs_a_cpu():
    with pytest.raises(PlacementError, match="There is no CPU device"):
        place_model([gpu()], Options(), n_layer=4)


@pytest.mark.parametrize(
    ("ngl", "n_layers", "full"), [(-1, 5, True), (-2, 5, True), (5, 5, True), (4, 4, False)]
)
def test_all_layers_are_asked_for_by_a_negative_number(ngl, n_layers, full):
    placement = place_model([gpu(), CPU], Options(n_gpu_layers=ngl), n_layer=4)

    assert placement.n_gpu_layers == n_layers
    assert placement.is_fully_offloaded is full


def test_a_device_that_cannot_map_files_turns_mapping_off():
    assert place_model([gpu(), CPU], Options(), n_layer=4).use_mmap
    assert not place_model([gpu(keys="mmap=0"), CPU], Options(), n_layer=4).use_mmap


def test_backends_stand_in_order_of_priority():
    blas = parse_virtual("BLAS:accel:0")
    placement = place_model([CPU, blas, gpu("GPU0"), gpu("GPU1")], Options(), n_layer=4)

    assert [view.name for view in backend_views(placement)] == ["GPU0", "GPU1", "BLAS", "CPU"]


def test_the_cpu_computes_in_the_first_devices_pinned_memory():
    pinned, plain = gpu("CUDA0", keys="preset=cuda"), gpu("GPU1")

    first = backend_views(place_model([pinned, plain, CPU], Options(), n_layer=4))
    second = backend_views(place_model([plain, pinned, CPU], Options(), n_layer=4))

    assert first[-1].buft.name == "CUDA_Host"
    assert second[-1].buft.name == "CPU"


def test_a_stream_is_named_as_it_stands_in_copies():
    server = gpu("RPC0", keys="preset=rpc,buft=RPC0[host:1]")

    views = backend_views(place_model([server, CPU], Options(), n_layer=4))

    assert views[0].name == "RPC0[host:1]"


# Shares.


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1, 1), ["GPU0"] * 3 + ["GPU1"] * 2),
        ((3, 1), ["GPU0"] * 4 + ["GPU1"]),
        ((0, 1), ["GPU1"] * 5),
    ],
)
def test_shares_count_instead_of_free_memory(shares, expected):
    pair = [gpu("GPU0", 3000), gpu("GPU1", 1000), CPU]

    placement = place_model(pair, Options(tensor_split=shares), n_layer=4)

    assert names(placement.layer_devices) == expected


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1,), ["GPU0"] * 5),
        ((0, 0, 7), ["GPU0"] * 4 + ["GPU1"]),
        ((1, 1, 9), ["GPU0"] * 3 + ["GPU1"] * 2),
        ((0, 0), ["GPU0"] * 4 + ["GPU1"]),
    ],
)
def test_the_rule_itself_takes_what_llama_cpp_takes(shares, expected):
    """Missing shares are 0; shares that are all 0 for these devices leave it to their memory."""
    pair = [gpu("GPU0", 3000), gpu("GPU1", 1000)]

    placed = layers_to_devices(pair, CPU, n_layer=4, n_gpu_layers=5, shares=shares)

    assert names(placed) == expected


@pytest.mark.parametrize(
    ("ngl", "first", "last"),
    [
        (0, "CCCCC", "CCCCC"),
        (1, "CCCCG", "CCCGC"),
        (2, "CCCGG", "CCGGC"),
        (4, "CGGGG", "GGGGC"),
        (5, "GGGGG", "GGGGG"),
        (9, "GGGGG", "GGGGG"),
    ],
)
def test_the_output_goes_before_the_blocks_or_after_them(ngl, first, last):
    for rule, expected in (("output-first", first), ("output-last", last)):
        options = Options(n_gpu_layers=ngl, layer_rule=rule)

        placement = place_model([gpu(), CPU], options, n_layer=4)

        assert "".join(device.name[0] for device in placement.layer_devices) == expected


def test_the_older_rule_shares_the_blocks_among_devices():
    pair = [gpu("GPU0"), gpu("GPU1"), CPU]
    options = Options(n_gpu_layers=2, layer_rule="output-last")

    placement = place_model(pair, options, n_layer=4)

    assert names(placement.layer_devices) == ["CPU", "CPU", "GPU0", "GPU1", "CPU"]


# Buffer types.


def list_of(placement, device=None):
    spots = placement.cpu_spots if device is None else placement.device_spots(device)
    return [f"{spot.device.name} {spot.buft.name}" for spot in spots]


def test_the_lists_stand_in_llama_cpps_order():
    accel = parse_virtual("ACC:accel:0:buft=ACC_MEM")
    extra = replace(gpu("GPU0"), extra_bufts=(BufferTypeFacts("GPU0_EXTRA"),))
    devices = [extra, gpu("CUDA1", keys="preset=cuda"), accel, CPU]

    placement = place_model(devices, Options(), n_layer=4)

    on_cpu = ["ACC ACC_MEM", "CUDA1 CUDA_Host", "CPU CPU_REPACK", "CPU CPU"]
    assert list_of(placement) == on_cpu == list_of(placement, CPU)
    assert list_of(placement, extra) == ["GPU0 GPU0", "GPU0 GPU0_EXTRA", *on_cpu]


@pytest.mark.parametrize(
    ("options", "left"),
    [({"repack": False}, ["CUDA0 CUDA_Host", "CPU CPU"]),
     ({"host_buffer": False}, ["CPU CPU_REPACK", "CPU CPU"])],
)  # fmt: skip
def test_options_leave_kinds_of_memory_out(options, left):
    placement = place_model([gpu("CUDA0", keys="preset=cuda"), CPU], Options(**options), n_layer=4)

    assert list_of(placement) == left


def test_blas_has_no_memory_of_its_own():
    placement = place_model([BLAS, CPU], Options(), n_layer=4)

    assert list_of(placement) == ["CPU CPU_REPACK", "CPU CPU"]


@pytest.mark.parametrize(("mmap", "name"), [(True, "CPU"), (False, "CUDA_Host")])
def test_a_cpu_weight_is_pinned_only_when_the_file_is_not_mapped(mmap, name):
    device = gpu("CUDA0", keys="preset=cuda")
    placement = place_model([device, CPU], Options(mmap=mmap), n_layer=4)

    home = placement.home_of(MemorySpot(device, device.host_buft))

    assert home.buft.name == name


def test_the_cpus_memory_is_the_cpus_whoever_runs_from_it():
    placement = place_model([BLAS, CPU], Options(devices=("BLAS",)), n_layer=4)

    assert placement.home_of(MemorySpot(BLAS, BLAS.buft)) == MemorySpot(CPU, CPU.buft)


def test_no_mmap_turns_mapping_off():
    assert not place_model([gpu(), CPU], Options(mmap=False), n_layer=4).use_mmap


def test_a_mapped_file_is_another_kind_of_buffer_of_the_same_memory():
    assert mapped(CPU.buft) == BufferTypeFacts("CPU_Mapped", alignment=32, is_host=True)
    assert CPU.caps == DeviceCaps(buffer_from_host_ptr=True)
    assert CPU.type is DeviceType.CPU


# Overrides.


def override_of(name, **options):
    found = place_model([gpu(), CPU], Options(**options), n_layer=4).override_of(name)
    return found and found.buft


@pytest.mark.parametrize(
    ("name", "buft"),
    [("blk.1.ffn_up.weight", "CPU"), ("blk.1.attn_q.weight", "GPU0"), ("blk.11.ffn_up", None)],
)
def test_the_first_pattern_that_is_found_in_a_name_counts(name, buft):
    overrides = ((r"blk\.1\.ffn_.*", "CPU"), (r"blk\.1\.", "GPU0"), ("ffn_down", "GPU0"))

    assert override_of(name, tensor_overrides=overrides) == buft


EXPERT = "blk.2.ffn_gate_exps.weight"


@pytest.mark.parametrize(
    ("name", "options", "buft"),
    [
        (EXPERT, {"cpu_moe": True}, "CPU"),
        ("blk.2.ffn_gate_up_chexps.weight", {"cpu_moe": True}, "CPU"),
        ("blk.2.ffn_gate.weight", {"cpu_moe": True}, None),
        (EXPERT, {"n_cpu_moe": 3}, "CPU"),
        (EXPERT, {"n_cpu_moe": 2}, None),
        ("blk.12.ffn_gate_exps.weight", {"n_cpu_moe": 3}, None),
        ("blk.12.ffn_gate_exps.weight", {"n_cpu_moe": 13}, "CPU"),
        (EXPERT, {"cpu_moe": True, "tensor_overrides": (("exps", "GPU0"),)}, "GPU0"),
        (EXPERT, {}, None),
    ],
)
def test_experts_have_shortcuts(name, options, buft):
    assert override_of(name, **options) == buft


def test_an_override_to_memory_that_no_device_has_is_refused():
    options = Options(tensor_overrides=(("ffn", "CUDA0"),))

    with pytest.raises(PlacementError) as caught:
        place_model([gpu(), CPU], options, n_layer=4)

    assert caught.value.title == "There is no memory called CUDA0."
    assert caught.value.sentence == "These devices have GPU0, CPU."


# Pipelines.

TWO = ("CUDA0:gpu:8192:preset=cuda", "CUDA1:gpu:8192:preset=cuda")


@pytest.mark.parametrize(
    ("devices", "options", "obstacle"),
    [
        (TWO, {}, ""),
        (TWO, {"n_gpu_layers": 9}, ""),
        (TWO[:1], {}, "the model uses fewer than two devices"),
        (TWO, {"n_gpu_layers": 4}, "not every layer is on a device (-ngl)"),
        (TWO, {"split_mode": "none"}, "the model uses fewer than two devices (-sm none)"),
        (TWO, {"split_mode": "tensor"}, "every layer is on all devices (-sm tensor)"),
        (
            TWO,
            {"split_mode": "tensor", "n_gpu_layers": 2},
            "layers that -ngl takes are on all devices (-sm tensor)",
        ),
        (TWO, {"devices": ()}, "the model uses fewer than two devices"),
        (TWO, {"n_cpu_moe": 1}, "weights were given other memory (-ot, --cpu-moe, --n-cpu-moe)"),
        (TWO, {"n_copies": 1}, "only one graph at a time was asked for (--n-copies 1)"),
        (TWO, {"offload_kqv": False}, "keys and values are in the CPU's memory (-nkvo)"),
        (
            TWO,
            {"tensor_overrides": (("zzz", "CPU"),)},
            "weights were given other memory (-ot, --cpu-moe, --n-cpu-moe)",
        ),
        (
            TWO,
            {"cpu_moe": True},
            "weights were given other memory (-ot, --cpu-moe, --n-cpu-moe)",
        ),
        (
            (*TWO, "BLAS:accel:0"),
            {},
            "BLAS does not compute asynchronously, or has no events",
        ),
        (
            (TWO[0], "GPU1:gpu:8192:async=1"),
            {},
            "GPU1 does not compute asynchronously, or has no events",
        ),
    ],
)
def test_a_pipeline_needs_every_condition(devices, options, obstacle):
    """T17"""
    found = [*(parse_virtual(line) for line in devices), CPU]
    asked = Options(**options)

    placement = place_model(found, asked, n_layer=4)

    assert pipeline_obstacle(placement, asked) == obstacle
    assert pipeline_copies(placement, asked) == (1 if obstacle else 4)


# Accelerators that take layers.

OWN = BufferTypeFacts("ggml-CPU", is_host=True)
SPECIAL = BufferTypeFacts("ggml-CPU_REPACK")
LAYER_RULES = gpu().rules
OTHER_CPU = replace(
    parse_virtual("ggml-CPU:accel:0"), buft=OWN, extra_bufts=(SPECIAL,), layer_rules=LAYER_RULES
)


def test_an_accelerator_that_takes_layers_is_one_until_it_is_named():
    placement = place_model([OTHER_CPU, CPU], Options(), n_layer=4)

    assert names(placement.devices) == []
    assert names(placement.accels) == ["ggml-CPU"]
    assert placement.cpu_spots[0].buft == OWN


@pytest.mark.parametrize("name", ["ggml-CPU", "GGML-cpu"])
def test_named_it_takes_layers_and_is_no_accelerator_any_more(name):
    asked = Options(devices=(name,), n_gpu_layers=3)

    placement = place_model([OTHER_CPU, CPU], asked, n_layer=4)

    assert placement.accels == ()
    assert [d.type for d in placement.devices] == [DeviceType.GPU]
    assert placement.devices[0].rules is LAYER_RULES
    assert names(placement.layer_devices) == ["CPU"] * 2 + ["ggml-CPU"] * 3
    assert [v.name for v in backend_views(placement)] == ["ggml-CPU", "CPU"]


def test_its_weights_go_first_into_the_memory_that_its_kernels_like():
    asked = Options(devices=("ggml-CPU",))
    placement = place_model([OTHER_CPU, CPU], asked, n_layer=4)
    plain = place_model([OTHER_CPU, CPU], replace(asked, repack=False), n_layer=4)

    spots = placement.device_spots(placement.devices[0])

    assert [spot.buft for spot in spots[:2]] == [SPECIAL, OWN]
    assert plain.device_spots(plain.devices[0])[0].buft == OWN


def test_a_device_named_for_layers_that_takes_none_otherwise_stays_as_it_is():
    placement = place_model([BLAS, CPU], Options(devices=("BLAS",)), n_layer=4)

    assert [d.type for d in placement.devices] == [DeviceType.ACCEL]
