"""Devices, layers and buffer types: the examples of SCHED.md 6, 7 and 8."""

import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.null.virtual import parse_virtual
from engine.core.devices import BufferTypeFacts, DeviceCaps, DeviceType
from engine.core.ops import Op
from engine.core.options import Options
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import PlacementError
from engine.model.placement import (
    MemorySpot,
    backend_views,
    choose_devices,
    choose_spot,
    layers_to_devices,
    mapped,
    place_model,
    probe_op,
)

CPU = parse_virtual("CPU:cpu:16384")


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


# Devices.


def igpu(name, reg="NULL"):
    return replace(parse_virtual(f"{name}:igpu:1"), reg=reg)


def test_servers_come_before_cards_and_the_cpu_is_not_chosen():
    found = [gpu("GPU0"), CPU, gpu("RPC0", keys="preset=rpc"), gpu("GPU1")]

    assert names(choose_devices(found, None)) == ["RPC0", "GPU0", "GPU1"]


def test_accelerators_are_not_chosen():
    assert choose_devices([parse_virtual("BLAS:accel:0"), CPU], None) == ()


def test_one_card_seen_twice_is_used_once():
    found = [gpu("CUDA0", device_id="0:1"), gpu("Vulkan0", device_id="0:1"),
             gpu("Vulkan1", device_id="0:2")]  # fmt: skip

    assert names(choose_devices(found, None)) == ["CUDA0", "Vulkan1"]


def test_cards_without_an_address_are_all_used():
    assert names(choose_devices([gpu("A"), gpu("B")], None)) == ["A", "B"]


def test_integrated_gpus_are_used_only_without_cards():
    assert names(choose_devices([igpu("I"), gpu("G")], None)) == ["G"]
    assert names(choose_devices([igpu("I")], None)) == ["I"]


def test_a_server_does_not_count_as_a_card():
    found = [gpu("RPC0", keys="preset=rpc"), igpu("I")]

    assert names(choose_devices(found, None)) == ["RPC0", "I"]


def test_integrated_gpus_of_one_family_are_used():
    found = [igpu("I0", "A"), igpu("I1", "A"), igpu("I2", "B")]

    assert names(choose_devices(found, None)) == ["I0", "I1"]


def test_named_devices_are_used_in_that_order():
    found = [gpu("GPU0"), gpu("GPU1"), CPU]

    assert names(choose_devices(found, ("gpu1", "GPU0"))) == ["GPU1", "GPU0"]


def test_a_family_stands_for_its_first_device():
    found = [gpu("OpenCL0", reg="OpenCL"), gpu("OpenCL1", reg="OpenCL")]

    assert names(choose_devices(found, ("opencl",))) == ["OpenCL0"]


@pytest.mark.parametrize("wanted", [(), ("none",), ("CPU",)])
def test_none_and_the_cpu_are_no_device_beside_it(wanted):
    assert choose_devices([gpu(), CPU], wanted) == ()


def test_a_device_named_twice_is_refused():
    with pytest.raises(PlacementError, match="GPU0 is named twice"):
        choose_devices([gpu(), CPU], ("GPU0", "gpu0"))


def test_an_unknown_device_is_answered_with_those_that_exist():
    with pytest.raises(PlacementError) as caught:
        choose_devices([gpu(), CPU], ("GPU7",))

    assert caught.value.title == "There is no device GPU7."
    assert caught.value.sentence == "This machine has GPU0, CPU."


def test_a_model_needs_a_cpu():
    with pytest.raises(PlacementError, match="There is no CPU device"):
        place_model([gpu()], Options(), n_layer=4)


# A placement.


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


# Where a weight goes.


def weight(*ne, tensor_type=TensorType.F32):
    return Tensor(tensor_type, shape4(*ne), name="w")


def spot(device):
    """Where a matmul weight of the device's layer goes."""
    placement = place_model([device, CPU], Options(), n_layer=4)
    return choose_spot(placement.device_spots(device), weight(64, 64), Op.MUL_MAT, placement)


def test_a_weight_goes_to_its_layers_device():
    assert spot(gpu()).buft.name == "GPU0"


def test_a_weight_whose_operation_the_device_lacks_falls_back_to_the_host():
    assert spot(gpu(keys="noops=MUL_MAT")) == MemorySpot(CPU, CPU.buft)


@pytest.mark.parametrize(("mmap", "name"), [(True, "CPU"), (False, "CUDA_Host")])
def test_a_cpu_weight_is_pinned_only_when_the_file_is_not_mapped(mmap, name):
    device = gpu("CUDA0", keys="preset=cuda")
    placement = replace(place_model([device, CPU], Options(), n_layer=4), use_mmap=mmap)

    chosen = choose_spot(placement.cpu_spots(), weight(64, 64), Op.MUL_MAT, placement)

    assert chosen.buft.name == name


def test_the_pinned_memory_is_that_of_the_first_device_that_has_some():
    devices = [gpu("GPU0"), gpu("CUDA1", keys="preset=cuda"), CPU]

    spots = place_model(devices, Options(), n_layer=4).cpu_spots()

    assert [(s.device.name, s.buft.name) for s in spots] == [("CUDA1", "CUDA_Host"), ("CPU", "CPU")]


def test_an_accelerator_with_memory_of_its_own_comes_first():
    accel = parse_virtual("ACC:accel:0:buft=ACC_MEM")
    placement = place_model([accel, CPU], Options(), n_layer=4)

    assert [s.buft.name for s in placement.cpu_spots()] == ["ACC_MEM", "CPU"]


def test_blas_has_no_memory_of_its_own():
    blas = replace(parse_virtual("BLAS:accel:0"), buft=CPU.buft)
    placement = place_model([blas, CPU], Options(), n_layer=4)

    assert placement.cpu_spots() == [MemorySpot(CPU, CPU.buft)]


def test_a_weight_that_nobody_can_use_is_refused():
    lacking = parse_virtual("CPU:cpu:1:noops=MUL_MAT")
    placement = place_model([lacking], Options(), n_layer=4)

    with pytest.raises(PlacementError) as caught:
        choose_spot(placement.cpu_spots(), weight(64, 64), Op.MUL_MAT, placement)

    assert caught.value.title == "No device can hold w."
    assert caught.value.sentence == "No backend runs MUL_MAT with f32 weights."


@pytest.mark.parametrize(
    ("op", "ne", "source", "batch"),
    [
        (Op.MUL_MAT, (64, 8), 0, (8, 512, 1, 1)),
        (Op.GET_ROWS, (64, 8), 0, (64, 512, 1, 1)),
        (Op.MUL, (64,), 1, (64, 512, 1, 1)),
        (Op.ADD, (64,), 1, (64, 512, 1, 1)),
        (Op.ROPE, (32,), 2, (64, 1, 512, 1)),
    ],
)
def test_a_weight_is_tried_with_its_operation_on_a_batch_of_512(op, ne, source, batch):
    tried = weight(*ne)

    probe = probe_op(tried, op)

    assert (probe.op, probe.src[source], probe.ne) == (op, tried, batch)


def test_a_mapped_file_is_another_kind_of_buffer_of_the_same_memory():
    assert mapped(CPU.buft) == BufferTypeFacts("CPU_Mapped", alignment=32, is_host=True)
    assert CPU.caps == DeviceCaps(buffer_from_host_ptr=True)
    assert CPU.type is DeviceType.CPU
