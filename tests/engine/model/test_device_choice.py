"""Which devices a model uses, what is refused, and what is said of the others: SCHED.md 6."""

from dataclasses import replace

import pytest

from engine.core.options import BlasUse, Options
from engine.core.plan import DeviceRole, DeviceUse
from engine.errors import PlacementError
from engine.model.device_choice import choose_devices
from engine.model.placement import place_model
from tests.engine.paper import parse_virtual

CPU = parse_virtual("CPU:cpu:16384")
BLAS = parse_virtual("BLAS:accel:0")


def gpu(name="GPU0", keys="", **facts):
    return replace(parse_virtual(f"{name}:gpu:8192:{keys}"), **facts)


def igpu(name, reg="NULL", **facts):
    return replace(parse_virtual(f"{name}:igpu:1"), reg=reg, **facts)


def rpc(name="RPC0"):
    return gpu(name, "preset=rpc")


def names(devices):
    return [device.name for device in devices]


def chosen(found, **options):
    return names(choose_devices(found, Options(**options), CPU).devices)


def uses(found, **options):
    """What is said of every device that was found."""
    return place_model(found, Options(**options), n_layer=4).uses


def left_out(found, **options):
    return {u.device: u.reason for u in uses(found, **options) if u.role is DeviceRole.LEFT_OUT}


def refusal(found, **options):
    with pytest.raises(PlacementError) as caught:
        place_model(found, Options(**options), n_layer=4)
    return caught.value


def test_none_with_other_names_is_refused():
    error = refusal([gpu("GPU0"), CPU], devices=("none", "gpu0"))

    assert error.title == "-dev cannot be none,gpu0."
    assert error.sentence == ("none means no device beside the CPU, and goes with no other name.")
    assert error.hint == "Leave none out, or give it alone."


# Without a list.


def test_servers_come_before_cards_and_the_cpu_is_not_chosen():
    assert chosen([gpu("GPU0"), CPU, rpc(), gpu("GPU1")]) == ["RPC0", "GPU0", "GPU1"]


def test_accelerators_are_not_chosen_and_work_beside_the_cpu():
    assert chosen([BLAS, CPU]) == []
    assert uses([BLAS, CPU]) == (
        DeviceUse("BLAS", DeviceRole.BESIDE, "it takes operations of CPU"),
        DeviceUse("CPU", DeviceRole.BESIDE, "the CPU takes what no other device does"),
    )


def test_one_card_seen_twice_is_used_once_and_said_so():
    found = [gpu("CUDA0", device_id="0:1"), gpu("Vulkan0", device_id="0:1"),
             gpu("Vulkan1", device_id="0:2"), CPU]  # fmt: skip

    assert chosen(found) == ["CUDA0", "Vulkan1"]
    assert left_out(found) == {"Vulkan0": "the same card as CUDA0 (0:1)"}


def test_the_first_of_the_same_cards_is_the_one_in_the_machines_order():
    found = [gpu("Vulkan0", device_id="0:1"), gpu("CUDA0", device_id="0:1")]

    assert chosen(found) == ["Vulkan0"]


def test_a_server_is_never_the_same_card():
    found = [replace(rpc("RPC0"), device_id="0:1"), replace(rpc("RPC1"), device_id="0:1"),
             gpu("CUDA0", device_id="0:1")]  # fmt: skip

    assert chosen(found) == ["RPC0", "RPC1", "CUDA0"]


def test_cards_without_an_address_are_all_used():
    assert chosen([gpu("A"), gpu("B")]) == ["A", "B"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_integrated_gpu_beside_a_card_is_left_out_in_any_order(order):
    pair = igpu("I"), gpu("G")
    found = [*(pair[i] for i in order), CPU]

    assert chosen(found) == ["G"]
    assert left_out(found) == {"I": "an integrated GPU beside the GPU G"}


def test_without_a_card_an_integrated_gpu_is_used():
    assert chosen([igpu("I")]) == ["I"]


def test_a_server_does_not_count_as_a_card():
    assert chosen([igpu("I"), rpc()]) == ["RPC0", "I"]


def test_integrated_gpus_of_one_family_are_used_and_others_may_be_the_same():
    found = [igpu("I0", "A"), igpu("I1", "B"), igpu("I2", "A"), CPU]

    assert chosen(found) == ["I0", "I2"]
    assert left_out(found) == {
        "I1": "an integrated GPU of another backend than I0, and perhaps the same one"
    }


def test_an_integrated_gpu_at_the_address_of_another_is_used_all_the_same():
    found = [igpu("I0", device_id="0:1"), igpu("I1", device_id="0:1")]

    assert chosen(found) == ["I0", "I1"]


def test_a_second_cpu_is_left_out():
    found = [gpu(), CPU, parse_virtual("CPU1:cpu:8192")]

    assert left_out(found) == {"CPU1": "CPU is the CPU"}


# A list.


def test_named_devices_are_used_in_that_order_and_others_are_not():
    found = [gpu("GPU0"), gpu("GPU1"), gpu("GPU2"), CPU]

    assert chosen(found, devices=("gpu2", "GPU0")) == ["GPU2", "GPU0"]
    assert left_out(found, devices=("gpu2", "GPU0")) == {"GPU1": "-dev does not name it"}


def test_a_list_is_taken_as_it_is():
    """Neither the same card, nor an integrated GPU beside one, nor a server behind one."""
    found = [gpu("CUDA0", device_id="0:1"), gpu("Vulkan0", device_id="0:1"), igpu("I"), rpc(), BLAS]
    wanted = ("Vulkan0", "CUDA0", "I", "BLAS", "RPC0")

    assert chosen(found, devices=wanted) == list(wanted)


def test_a_family_stands_for_its_first_device():
    found = [gpu("OpenCL0", reg="OpenCL"), gpu("OpenCL1", reg="OpenCL")]

    assert chosen(found, devices=("opencl",)) == ["OpenCL0"]


@pytest.mark.parametrize("wanted", [(), ("none",), ("CPU",)])
def test_none_and_the_cpu_are_no_device_beside_it(wanted):
    assert chosen([gpu(), CPU], devices=wanted) == []


def test_a_device_named_twice_is_refused():
    error = refusal([gpu(), CPU], devices=("GPU0", "gpu0"))

    assert error.title == "The device GPU0 is named twice."


def test_an_unknown_device_is_answered_with_those_that_exist():
    error = refusal([gpu(), CPU], devices=("GPU7",))

    assert error.title == "There is no device GPU7."
    assert error.sentence == "This machine has GPU0, CPU."


def test_a_device_that_is_used_by_choice_is_off_until_it_is_chosen():
    by_choice = replace(BLAS, rules_by_use={BlasUse.AUTO: BLAS.rules, BlasUse.ALL: BLAS.rules})

    off, on = (uses([by_choice, CPU], blas=use)[0] for use in ("off", "auto"))

    assert off == DeviceUse("BLAS", DeviceRole.OFF, "--blas is off")
    assert on.role is DeviceRole.BESIDE


# Split modes.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["GPU0", "GPU1"]),
        ({"split_mode": "none"}, ["GPU0"]),
        ({"split_mode": "none", "main_gpu": 1}, ["GPU1"]),
        ({"split_mode": "none", "main_gpu": -1}, []),
        ({"split_mode": "layer", "main_gpu": 1}, ["GPU0", "GPU1"]),
        ({"split_mode": "layer", "main_gpu": 7}, ["GPU0", "GPU1"]),
        ({"split_mode": "none", "main_gpu": 1, "devices": ("GPU1", "GPU0")}, ["GPU0"]),
        ({"split_mode": "none", "devices": ()}, []),
        ({"split_mode": "none", "main_gpu": 7, "devices": ()}, []),
        ({"split_mode": "tensor"}, ["GPU0", "GPU1"]),
        ({"split_mode": "tensor", "devices": ("GPU1", "GPU0")}, ["GPU1", "GPU0"]),
        ({"devices": ("BLAS",)}, ["BLAS"]),
    ],
)
def test_the_split_mode_says_how_many_devices_are_used(options, expected):
    assert chosen([gpu("GPU0"), gpu("GPU1"), BLAS, CPU], **options) == expected


def test_the_main_gpu_counts_servers_first():
    found = [gpu("GPU0"), rpc(), CPU]

    assert chosen(found, split_mode="none") == ["RPC0"]
    assert chosen(found, split_mode="none", main_gpu=1) == ["GPU0"]


def test_what_a_single_gpu_leaves_out_is_said():
    pair = [gpu("GPU0"), gpu("GPU1"), CPU]

    assert left_out(pair, split_mode="none", main_gpu=1) == {
        "GPU0": "all layers are for GPU1 (-sm none)"
    }
    assert left_out(pair, split_mode="none", main_gpu=-1) == {
        "GPU0": "no GPU is wanted (-mg -1)",
        "GPU1": "no GPU is wanted (-mg -1)",
    }


def test_joined_devices_are_all_that_have_memory_of_their_own():
    """Also the same card twice, and an integrated GPU beside one."""
    shares_memory = replace(igpu("I1"), buft=CPU.buft)
    found = [gpu("CUDA0", device_id="0:1"), gpu("Vulkan0", device_id="0:1"), igpu("I0"),
             shares_memory, BLAS, CPU]  # fmt: skip

    assert chosen(found, split_mode="tensor") == ["CUDA0", "Vulkan0", "I0"]
    assert left_out(found, split_mode="tensor") == {"I1": "it has no memory of its own"}
    roles = [use.role for use in uses(found, split_mode="tensor")]
    assert roles == ["layers"] * 3 + ["left out"] + ["beside"] * 2


def test_a_main_gpu_that_is_not_there_is_refused_with_those_that_are():
    error = refusal([gpu("GPU0"), gpu("GPU1"), CPU], split_mode="none", main_gpu=2)

    assert error.title == "There is no GPU number 2."
    assert error.sentence == "They are counted from 0: 0 is GPU0, 1 is GPU1."
    assert error.hint == "Choose another main GPU (-mg)."


# Shares.

PAIR = [gpu("GPU0", splits_rows=True), gpu("GPU1", splits_rows=True), CPU]


@pytest.mark.parametrize("mode", ["layer", "row", "tensor"])
@pytest.mark.parametrize("shares", [(0,), (0, 0), (0, 0, 0), (1e-46, 0)])
def test_shares_that_are_all_zero_are_refused(shares, mode):
    """Also those that are 0 in float32, in which shares are counted."""
    error = refusal(PAIR, tensor_split=shares, split_mode=mode)

    assert error.title == "-ts gives no device a share."
    assert (
        error.sentence == "All of its shares are 0. llama.cpp takes that as if -ts was not given."
    )
    assert error.hint == "Leave -ts out, or give shares such as 3,1."


@pytest.mark.parametrize("mode", ["layer", "row", "tensor"])
def test_a_share_too_few_is_refused_with_who_gets_nothing(mode):
    found = [*PAIR, gpu("GPU2", splits_rows=True)]

    error = refusal(found, tensor_split=(3,), split_mode=mode)

    assert error.title == "-ts has 1 share for 3 devices."
    assert error.sentence == "GPU1, GPU2 would get nothing."
    assert error.hint.endswith("has 0, such as -ts 1,0,0.")


@pytest.mark.parametrize("mode", ["layer", "row", "tensor"])
@pytest.mark.parametrize("shares", [(1, 1, 1), (1, 1, 0)])
def test_a_share_too_many_is_refused_with_whom_they_are_for(shares, mode):
    error = refusal(PAIR, tensor_split=shares, split_mode=mode)

    assert error.title == "-ts has 3 shares for 2 devices."
    assert error.sentence == "In order they are for GPU0, GPU1."
    assert error.hint == "Give 2, or leave -ts out."


def test_shares_without_devices_are_refused():
    error = refusal(PAIR, tensor_split=(1, 1), devices=())

    assert error.title == "-ts has 2 shares for no devices."
    assert error.sentence == "The model is on the CPU alone."


@pytest.mark.parametrize("shares", [(1,), (3, 1), (0, 0)])
def test_shares_are_not_looked_at_where_nothing_is_shared(shares):
    assert chosen(PAIR, tensor_split=shares, split_mode="none") == ["GPU0"]


def test_a_device_may_be_given_nothing_in_so_many_words():
    placement = place_model(PAIR, Options(tensor_split=(0, 1)), n_layer=4)

    assert names(placement.layer_devices) == ["GPU1"] * 5


@pytest.mark.parametrize("share", [-1.0, float("nan"), float("inf"), 1e31, "1", None])
def test_a_share_that_is_no_number_from_0_on_is_refused_before_anything(share):
    with pytest.raises(PlacementError) as caught:
        Options(tensor_split=(1, share))

    assert caught.value.title.startswith("-ts cannot be 1,")
    assert caught.value.sentence == "It must be shares from 0 to 1e+30 with commas between them."
