"""Devices joined by -sm tensor: the facts of the one device, who is joined, what is refused."""

from dataclasses import replace

import pytest

from engine.core.build import mul_mat, rms_norm
from engine.core.devices import BufferTypeFacts, DeviceType
from engine.core.options import Options, SplitMode
from engine.core.plan import Batch
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError
from engine.model.arch import ARCHITECTURES
from engine.model.meta_device import MOST_MEMBERS, NEVER_SHARED, check_shares, join
from engine.model.placement import backend_views, pipeline_copies, place_model
from engine.model.planning import make_planner
from tests.engine.model.made import made_file
from tests.engine.paper import parse_virtual

CPU = parse_virtual("CPU:cpu:16384")
BLAS = parse_virtual("BLAS:accel:0")
TENSOR = Options(split_mode=SplitMode.TENSOR)


def device(name, keys="", kind="gpu", mib=100):
    return parse_virtual(f"{name}:{kind}:{mib}:{keys}")


def placed(*devices, **options):
    return place_model([*devices, CPU], replace(TENSOR, **options), n_layer=4)


# The facts.


def test_the_stream_names_its_members_and_device_and_memory_do_not():
    joined = join([device("A"), device("B")])

    assert joined.stream_name == "Meta(A,B)"
    assert joined.name == joined.buft.name == "Meta()"
    assert joined.type is DeviceType.META


def test_it_knows_its_members_and_says_who_they_are():
    pair = [device("A"), device("B")]

    joined = join(pair)

    assert joined.members == tuple(pair)
    assert joined.description == "A, B as one device; memory counts each tensor once"


def test_memory_is_the_sum_and_as_strict_as_the_strictest_members():
    joined = join(
        [device("A", "align=64,max=5000"), device("B", "align=256,max=4000", mib=50), device("C")]
    )

    assert (joined.memory_free, joined.memory_total) == (250 * 2**20, 250 * 2**20)
    assert joined.buft == BufferTypeFacts("Meta()", alignment=256, max_bytes=4000)


def test_rows_are_padded_as_one_member_pads_them():
    assert join([device("A"), device("B", "preset=cuda")]).buft.pad_row_elems == 512


@pytest.mark.parametrize(("both", "one"), [("async", "asynchronous"), ("mmap", "mmap_support")])
def test_it_can_what_all_members_can(both, one):
    able, unable = device("A", f"{both}=1"), device("B", f"{both}=0")

    assert getattr(join([able, able]).caps, one)
    assert not getattr(join([able, unable]).caps, one)


def test_it_has_no_events_and_wants_no_operation_whatever_its_members_do():
    cards = [device("A", "preset=cuda"), device("B", "preset=cuda")]
    joined = join(cards)
    x = Tensor(TensorType.F32, (64, 64, 1, 1))

    assert all(card.rules.offload_op(mul_mat(x, x)) for card in cards)
    assert not joined.rules.offload_op(mul_mat(x, x))
    assert not joined.caps.events
    assert not joined.copies_async


def test_pinned_memory_is_there_when_members_pin_the_same():
    cuda, vulkan = device("A", "preset=cuda"), device("B", "preset=vulkan")

    assert join([cuda, device("C", "preset=cuda")]).host_buft == cuda.host_buft
    assert join([cuda, vulkan]).host_buft is None
    assert join([cuda, device("D")]).host_buft is None


def test_it_runs_what_all_members_run_and_reads_its_own_memory_only():
    rules = join([device("A"), device("B", "noops=MUL_MAT")]).rules
    x = Tensor(TensorType.F32, (64, 64, 1, 1))

    assert rules.supports_op(rms_norm(x, 1e-5))
    assert not rules.supports_op(mul_mat(x, x))
    assert rules.supports_buft(BufferTypeFacts("Meta()"))
    assert not rules.supports_buft(BufferTypeFacts("A"))
    assert not rules.supports_buft(CPU.buft)


# Who is joined.


@pytest.mark.parametrize(
    ("names", "stream"),
    [
        (None, "Meta(A,I,RPC0)"),
        (("RPC0", "A"), "Meta(RPC0,A)"),
        (("A",), "Meta(A)"),
    ],
)
def test_all_devices_with_memory_of_their_own_are_joined_or_those_named(names, stream):
    """In order: unlike with -sm layer, RPC is not first and integrated GPUs stay."""
    placement = placed(
        device("A"), BLAS, device("I", kind="igpu"), device("RPC0", "preset=rpc"), devices=names
    )

    assert [d.stream_name for d in placement.devices] == [stream]
    assert [view.name for view in backend_views(placement)] == [stream, "BLAS", "CPU"]


@pytest.mark.parametrize(("ngl", "n_cpu"), [(-1, 0), (2, 3), (0, 5)])
def test_layers_are_on_the_joined_device_or_the_cpu(ngl, n_cpu):
    placement = placed(device("A"), device("B"), n_gpu_layers=ngl, tensor_split=(3, 1))

    names = [d.name for d in placement.layer_devices]
    assert names == ["CPU"] * n_cpu + ["Meta()"] * (5 - n_cpu)


def test_there_is_no_pipeline():
    pair = device("RPC0", "preset=rpc"), device("RPC1", "preset=rpc")

    assert pipeline_copies(placed(*pair), TENSOR) == 1
    assert pipeline_copies(placed(*pair, split_mode="layer"), Options()) == 4


# What is refused.


@pytest.mark.parametrize(
    ("devices", "title"),
    [
        ([BLAS], "-sm tensor needs at least one device."),
        (
            [device(f"G{i}") for i in range(MOST_MEMBERS + 1)],
            f"-sm tensor cannot join {MOST_MEMBERS + 1} devices.",
        ),
    ],
)
def test_none_and_too_many_devices_are_refused(devices, title):
    with pytest.raises(PlacementError) as caught:
        placed(*devices)

    assert caught.value.title == title
    assert caught.value.hint


@pytest.mark.parametrize("arch", sorted(NEVER_SHARED & set(ARCHITECTURES)))
def test_architectures_that_llama_cpp_does_not_share_are_refused(arch):
    with pytest.raises(PlacementError, match=f"-sm tensor is not there for {arch} models"):
        check_shares(arch, TENSOR)
    check_shares(arch, Options())


@pytest.mark.parametrize(
    ("flash_attn", "is_refused"), [("auto", False), ("on", False), ("off", True)]
)
def test_flash_attention_is_on_and_cannot_be_off(tmp_path, flash_attn, is_refused):
    """Also where no device runs it on its layer's device, which auto would find out."""
    pair = [device("A", "noops=FLASH_ATTN_EXT"), device("B"), CPU]
    options = replace(TENSOR, flash_attn=flash_attn)
    with made_file(tmp_path) as file:
        if is_refused:
            with pytest.raises(PlacementError, match="-sm tensor needs flash attention"):
                make_planner(file, pair, options)
            return
        planner = make_planner(file, pair, options)

    assert planner.flash_attn
    nodes = planner.reserved[Batch.TOKEN].plan.graph.nodes
    assert "FLASH_ATTN_EXT" in {node.op_desc for node in nodes}
