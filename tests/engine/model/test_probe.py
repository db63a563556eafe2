"""Which memory suits a weight: every device of a list is asked with the weight's operation."""

from dataclasses import replace

import pytest

from engine.core.ops import Op, RopeParams
from engine.core.options import Options
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import PlacementError
from engine.model.hparams import Hparams, LayerHparams
from engine.model.placement import MemorySpot, place_model
from engine.model.probe import choose_spot, first_spot, probe_op
from tests.engine.paper import parse_virtual

CPU = parse_virtual("CPU:cpu:16384")
LAYER = LayerHparams(4, 2, 16, 16, 128, RopeParams(16), n_expert_used=2)
HPARAMS = Hparams("llama", 512, 64, 96, (LAYER, replace(LAYER, n_expert_used=3)), 1e-5, n_expert=8)


def weight(*ne, tensor_type=TensorType.F32):
    return Tensor(tensor_type, shape4(*ne), name="w")


def spots(*lines, **options):
    """The list of a layer on the first device."""
    devices = [*(parse_virtual(line) for line in lines), CPU]
    return place_model(devices, Options(**options), n_layer=4).device_spots(devices[0])


def test_a_weight_goes_to_its_layers_device():
    chosen = choose_spot(spots("GPU0:gpu:1"), weight(64, 64), Op.MUL_MAT, HPARAMS)

    assert chosen.buft.name == "GPU0"


def test_a_weight_whose_operation_the_device_lacks_falls_back_to_the_host():
    chosen = choose_spot(spots("GPU0:gpu:1:noops=MUL_MAT"), weight(64, 64), Op.MUL_MAT, HPARAMS)

    assert chosen == MemorySpot(CPU, CPU.buft)


@pytest.mark.parametrize(
    ("kind", "ne", "op", "name"),
    [
        (TensorType.Q4_0, (64, 64), Op.MUL_MAT, "CPU_REPACK"),
        (TensorType.Q4_0, (64, 60), Op.MUL_MAT, "CPU"),
        (TensorType.Q4_1, (64, 64), Op.MUL_MAT, "CPU"),
        (TensorType.Q4_0, (64, 64), Op.GET_ROWS, "CPU"),
        (TensorType.Q4_0, (64, 64, 8), Op.MUL_MAT_ID, "CPU_REPACK"),
        (TensorType.Q4_0, (64, 64, 8), Op.MUL_MAT, "CPU"),
        (TensorType.F32, (64,), Op.MUL, "CPU"),
    ],
)
def test_the_cpu_rearranges_weights_of_products_that_have_a_layout(kind, ne, op, name):
    placement = place_model([CPU], Options(), n_layer=4)

    chosen = choose_spot(placement.cpu_spots, weight(*ne, tensor_type=kind), op, HPARAMS)

    assert chosen.buft.name == name


def test_a_layout_needs_the_features_of_the_processor():
    old = parse_virtual("CPU:cpu:1:features=AVX")
    placement = place_model([old], Options(), n_layer=4)
    q4 = weight(64, 64, tensor_type=TensorType.Q4_0)

    assert choose_spot(placement.cpu_spots, q4, Op.MUL_MAT, HPARAMS).buft.name == "CPU"


def test_a_weight_that_nobody_can_use_is_refused_by_name():
    lacking = parse_virtual("CPU:cpu:1:noops=MUL_MAT")
    placement = place_model([lacking], Options(), n_layer=4)

    with pytest.raises(PlacementError) as caught:
        choose_spot(placement.cpu_spots, weight(64, 64), Op.MUL_MAT, HPARAMS)

    assert caught.value.title == "No device can hold w."
    assert caught.value.sentence == (
        "None runs MUL_MAT with f32 weights; tried: CPU (CPU_REPACK), CPU (CPU)."
    )
    assert first_spot(placement.cpu_spots, weight(64, 64), Op.MUL_MAT, HPARAMS) is None


@pytest.mark.parametrize(
    ("op", "ne", "source", "batch"),
    [
        (Op.MUL_MAT, (64, 8), 0, (8, 512, 1, 1)),
        (Op.MUL_MAT, (64, 8, 3), 0, (8, 512, 3, 1)),
        (Op.GET_ROWS, (64, 8), 0, (64, 512, 1, 1)),
        (Op.MUL_MAT_ID, (64, 8, 5), 0, (8, 3, 512, 1)),
        (Op.ADD_ID, (64, 5), 1, (64, 3, 512, 1)),
        (Op.MUL, (64,), 1, (64, 1, 1, 1)),
        (Op.ADD, (64, 2), 1, (64, 2, 1, 1)),
        (Op.ROPE, (8,), 2, (16, 4, 512, 1)),
    ],
)
def test_a_weight_is_tried_with_its_operation(op, ne, source, batch):
    tried = weight(*ne)

    probe = probe_op(tried, op, HPARAMS)

    assert (probe.op, probe.src[source], probe.ne) == (op, tried, batch)
