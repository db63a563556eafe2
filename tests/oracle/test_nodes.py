"""Every node of real graphs, value by value, on each backend."""

import re

import numpy as np
import pytest

from tests.oracle import golden
from tests.oracle.node_values import nmse, run_nodes

CASES = [
    # dump, model, flash attention, bar. Quantised weights: activations rounded to other blocks
    # than llama.cpp's give 1e-4, sums in another order 1e-9.
    ("nano-llama-f32-fa0", "nano-llama-f32", False, 1e-6),
    ("nano-llama-f32-fa1", "nano-llama-f32", True, 1e-6),
    pytest.param("tiny-llama-q4_0-fa1", "tiny-llama-q4_0", True, 1e-5, marks=pytest.mark.big_set),
]

# The recording read these views before the batch wrote into the cache, we read them after it.
CACHE_BEFORE_ITS_WRITE = {f"cache_v_l{il} (reshaped)" for il in range(8)}


def recorded_nodes(folder):
    """(index, op, name) of each dumped node, with the file of its values."""
    files = {int(path.name.split("_")[0]): path for path in folder.glob("*.npy")}
    for line in (folder / "nodes.tsv").read_text().splitlines():
        fields = [field.strip() for field in line.split("\t")]
        yield int(fields[0]), fields[1], fields[2], files[int(fields[0])]


@pytest.mark.parametrize("device", ["cpu", pytest.param("opencl", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("dump", "model", "flash_attn", "bar"), CASES)
def test_every_node_computes_what_llama_cpp_computed(dump, model, flash_attn, bar, device, request):
    if device == "opencl":
        request.getfixturevalue("opencl_device")
    tokens = golden.tokens()[model]["p1"]["prompt_tokens"]
    recorded = list(recorded_nodes(golden.nodes_dir(dump)))
    devices = ("none",) if device == "cpu" else ("OpenCL0",)

    worst = {}
    for node, (index, op, name, path) in zip(
        run_nodes(golden.model(model), tokens, devices=devices, flash_attn=flash_attn),
        recorded,
        strict=True,
    ):
        theirs = np.load(path).astype(np.float32)
        assert (node.node_id, node.tensor.op_desc, node.tensor.name) == (index, op, name)
        if node.tensor.is_view_op and node.tensor.name in CACHE_BEFORE_ITS_WRITE:
            continue
        finite = np.isfinite(theirs)
        worst[f"{index} {op} {name}"] = nmse(node.values[finite], theirs[finite])

    above = {name: error for name, error in worst.items() if not error <= bar}
    assert above == {}


def test_node_list_of_smollm2_has_the_recorded_shapes_and_strides():
    from engine.backends.null.virtual import parse_virtual
    from engine.core.options import Options
    from engine.core.plan import Batch, BatchShape
    from engine.gguf.reader import open_gguf
    from engine.model.planning import make_planner

    lines = golden.node_list("smollm2-135m-q4_1.p1.fa1").read_text().splitlines()
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        planner = make_planner(file, [parse_virtual("CPU:cpu:24105")], Options(n_ctx=512))
        graph = planner.plan(Batch.PROMPT, BatchShape(5, 256, 1)).plan.graph

    ours = []
    for index, node in enumerate(graph.nodes):
        sources = ";".join(source.name for source in node.src)
        ours.append(
            (index, node.op_desc, node.name, node.type.label, list(node.ne), list(node.nb), sources)
        )
    recorded = []
    for line in lines:
        field = [part.strip() for part in line.split("\t")]
        ne = [int(n) for n in re.findall(r"\d+", field[4])]
        nb = [int(n) for n in re.findall(r"\d+", field[5])]
        sources = field[-1].removeprefix("src=").rstrip(";")
        recorded.append((int(field[0]), field[1], field[2], field[3], ne, nb, sources))
    assert ours == recorded
