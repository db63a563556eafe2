"""Where recurrent states are, how large they are, and in which buffers."""

import pytest

from engine.core.devices import BufferUsage
from engine.core.plan import MemoryKind
from engine.core.types import TensorType
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import FALCON_H1, MAMBA, QWEN35

TWO = ("G0:gpu:8192", "G1:gpu:8192", "CPU:cpu:16384")


@pytest.fixture
def planner(tmp_path):
    """Return a function that plans a made model."""

    def make(arch="mamba", numbers=MAMBA, devices=("CPU:cpu:16384",), **options):
        with made_header(tmp_path, arch, **numbers) as file:
            return planner_of(file, devices, **options)

    return make


@pytest.mark.parametrize(
    ("arch", "numbers", "conv", "ssm"),
    [
        ("mamba", MAMBA, 3 * 512, 16 * 512),
        ("falcon-h1", FALCON_H1, 3 * (256 + 2 * 2 * 16), 16 * 256),
        ("qwen35", QWEN35, 3 * (64 + 2 * 2 * 16), 16 * 64),
    ],
)
def test_states_have_a_row_for_one_text(planner, arch, numbers, conv, ssm):
    state = planner(arch, numbers).model.state

    assert state.conv[0].ne == (conv, 1, 1, 1)
    assert state.ssm[0].ne == (ssm, 1, 1, 1)
    assert {t.type for t in (*state.conv.values(), *state.ssm.values())} == {TensorType.F32}


def test_a_model_without_recurrent_layers_has_none(planner):
    state = planner("llama", {}).model.state

    assert (state.conv, state.ssm, state.buffers) == ({}, {}, ())


def test_each_device_has_the_states_of_its_layers(planner):
    made = planner(devices=TWO, n_gpu_layers=-1, tensor_split=(1.0, 2.0))

    buffers = made.model.state.buffers
    assert [(b.device.name, [t.name for t in b.tensors]) for b in buffers] == [
        ("G0", ["cache_r_l0", "cache_s_l0"]), ("G1", ["cache_r_l1", "cache_s_l1"]),
    ]  # fmt: skip
    rows = [row for row in made.plan_set().memory.rows if row.kind is MemoryKind.STATE]
    assert [row.n_bytes for row in rows] == [(3 * 512 + 16 * 512) * 4] * 2


def test_without_offload_all_states_are_the_cpus(planner):
    made = planner(devices=TWO, n_gpu_layers=-1, offload_kqv=False)

    assert [b.device.name for b in made.model.state.buffers] == ["CPU"]


def test_states_are_neither_weights_nor_memory_of_a_graph(planner):
    state = planner().model.state

    homes = {t.buffer for t in (*state.conv.values(), *state.ssm.values())}
    assert {(home.usage, home.label) for home in homes} == {(BufferUsage.ANY, "recurrent state")}
