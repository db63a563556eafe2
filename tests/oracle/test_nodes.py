"""Every node of real graphs, value by value, on each backend."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.options import ALL_LAYERS, Options, SplitMode
from tests.oracle import golden
from tests.oracle.node_values import nmse, run_nodes

CASES = [
    # dump, model, flash attention, bar. Quantised weights: activations rounded to other blocks
    # than llama.cpp's give 1e-4, sums in another order 1e-9.
    ("nano-llama-f32-fa0", "nano-llama-f32", False, 1e-6),
    ("nano-llama-f32-fa1", "nano-llama-f32", True, 1e-6),
    pytest.param("tiny-llama-q4_0-fa1", "tiny-llama-q4_0", True, 1e-5, marks=pytest.mark.big_set),
    pytest.param(
        "tiny-qwen3moe-q8_0-fa1", "tiny-qwen3moe-q8_0", True, 1e-5, marks=pytest.mark.big_set
    ),
]

QUANTIZED_BAR = 5e-4
"""Of a node where weights are quantised."""

CPU = Options(devices=("none",))
GPU = Options(devices=("OpenCL0",))
HALF = replace(GPU, n_gpu_layers=2)
PLACEMENTS = {
    "cpu": CPU,
    "opencl all layers": GPU,
    # The recorded prompts are shorter than the rule's 32 rows.
    "opencl half, op_offload from one row on": HALF,
    "opencl half, op_offload off": replace(HALF, op_offload=False),
}


TWO = Options(devices=("OpenCL0", "OpenCL1"), tensor_split=(2, 1))
TWO_DEVICES = {
    "none": replace(TWO, split_mode=SplitMode.NONE, main_gpu=1),
    "layers in turn": replace(TWO, n_copies=1),
    "layers as a pipeline": replace(TWO, n_copies=4),
    "rows": replace(TWO, split_mode=SplitMode.ROW),
    "tensors": replace(TWO, split_mode=SplitMode.TENSOR),
}


def recorded_nodes(folder):
    """(index, op, name) of each dumped node, with the file of its values."""
    files = {int(path.name.split("_")[0]): path for path in folder.glob("*.npy")}
    for line in (folder / "nodes.tsv").read_text().splitlines():
        fields = [field.strip() for field in line.split("\t")]
        yield int(fields[0]), fields[1], fields[2], files[int(fields[0])]


@pytest.fixture(params=list(PLACEMENTS))
def placement(request, monkeypatch):
    """Give options that put all, none or half of the layers on OpenCL."""
    if "from one row" in request.param:
        monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", "1")
    if "opencl" in request.param:
        request.getfixturevalue("opencl_device")
    return PLACEMENTS[request.param]


def errors_of_nodes(dump, model, options, *, flash_attn):
    """The normalised squared error of every node, by its index, operation and name."""
    tokens = golden.tokens()[model]["p1"]["prompt_tokens"]
    recorded = list(recorded_nodes(golden.nodes_dir(dump)))

    errors = {}
    for node, (index, op, name, path) in zip(
        run_nodes(golden.model(model), tokens, options, flash_attn=flash_attn),
        recorded,
        strict=True,
    ):
        theirs = np.load(path).astype(np.float32)
        assert (node.node_id, node.tensor.op_desc, node.tensor.name) == (index, op, name)
        finite = np.isfinite(theirs)
        errors[f"{index} {op} {name}"] = nmse(node.values[finite], theirs[finite])
    return errors


@pytest.mark.parametrize(("dump", "model", "flash_attn", "bar"), CASES)
def test_every_node_computes_what_llama_cpp_computed(dump, model, flash_attn, bar, placement):
    errors = errors_of_nodes(dump, model, placement, flash_attn=flash_attn)

    above = {name: error for name, error in errors.items() if not error <= bar}
    assert above == {}


@pytest.fixture(params=list(TWO_DEVICES))
def two_devices(request, monkeypatch, opencl_device):
    """Give options that share the layers of a model between two OpenCL devices."""
    monkeypatch.setenv("SPLITSCOPE_OPENCL_PARTS", "2")
    return TWO_DEVICES[request.param]


@pytest.mark.parametrize(("dump", "model", "flash_attn", "bar"), CASES[1:])
def test_every_node_computes_the_same_on_two_devices(dump, model, flash_attn, bar, two_devices):
    errors = errors_of_nodes(dump, model, two_devices, flash_attn=flash_attn)

    above = {name: error for name, error in errors.items() if not error <= bar}
    assert above == {}


@pytest.mark.demo
@pytest.mark.slow
def test_every_node_of_smollm2_computes_on_two_devices_what_it_does_on_one(two_devices, demo_model):
    tokens = golden.tokens()["smollm2-135m-q4_1"]["p1"]["prompt_tokens"]
    one = run_nodes(demo_model, tokens, GPU, flash_attn=True)

    # Each from the values of one device: sums in another order grow through 30 layers whose
    # activations are rounded to blocks.
    two = run_nodes(demo_model, tokens, two_devices, flash_attn=True, given=one)

    assert [node.tensor.name for node in two] == [node.tensor.name for node in one]
    errors = {
        f"{ours.node_id} {ours.tensor.op_desc} {ours.tensor.name}": nmse(
            ours.values[np.isfinite(theirs.values)], theirs.values[np.isfinite(theirs.values)]
        )
        for ours, theirs in zip(two, one, strict=True)
    }
    assert {name: error for name, error in errors.items() if not error <= QUANTIZED_BAR} == {}


@pytest.mark.parametrize("n_gpu_layers", [ALL_LAYERS, 2], ids=["all layers", "half"])
@pytest.mark.parametrize("flash_attn", [False, True])
def test_every_node_computes_the_same_in_a_real_library(ggml_cpu, n_gpu_layers, flash_attn):
    """In float32: the library is of another version, whose rounding to blocks differs."""
    options = Options(devices=(ggml_cpu,), n_gpu_layers=n_gpu_layers, n_threads=1)
    dump = f"nano-llama-f32-fa{int(flash_attn)}"

    errors = errors_of_nodes(dump, "nano-llama-f32", options, flash_attn=flash_attn)

    assert {name: error for name, error in errors.items() if not error <= 1e-6} == {}
