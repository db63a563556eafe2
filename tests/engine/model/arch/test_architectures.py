"""What holds for every architecture: its weights are those its graph uses, and as it uses them."""

import pkgutil
import re
import subprocess
import sys
from typing import Any

import pytest

from engine.core.ops import Op
from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Flag
from engine.errors import ModelError
from engine.model import arch as package
from engine.model.arch import ARCHITECTURES, ArchitectureTable, find_architecture
from tests.engine.model.made_arch import built, made_header, planner_of, read
from tests.engine.model.made_numbers import ENCODER, FALCON_H1, GEMMA4, MAMBA, QWEN35

EXPERTS = {"expert_count": 4, "expert_used_count": 2}
SLIDING = {"attention__sliding_window": 8, "attention__sliding_window_pattern": 2}
WIDE_EXPERTS = {**EXPERTS, "expert_feed_forward_length": 128}
SHARED = {**WIDE_EXPERTS, "expert_shared_count": 2, "leading_dense_block_count": 1}
LAYER_NORMS = {
    "attention__layer_norm_rms_epsilon": None,
    "attention__layer_norm_epsilon": 1e-5,
}
UNPACKED = {
    **SHARED,
    "attention__head_count_kv": 4,
    "attention__q_lora_rank": 0,
    "attention__kv_lora_rank": 64,
    "rope__dimension_count": 32,
}
ABSORBED = {
    **UNPACKED,
    "attention__head_count_kv": 1,
    "attention__q_lora_rank": 48,
    "attention__key_length": 96,
    "attention__value_length": 64,
    "attention__key_length_mla": 64,
    "attention__value_length_mla": 48,
}
MODELS = [
    ("llama", {}),
    ("llama", {"rope__scaling__type": "longrope"}),
    ("llama", EXPERTS),
    ("qwen2", {}),
    ("qwen3", {}),
    ("qwen3moe", EXPERTS),
    ("olmoe", EXPERTS),
    ("phi3", {}),
    ("gptneox", {**LAYER_NORMS, "use_parallel_residual": True}),
    ("gptneox", {**LAYER_NORMS, "use_parallel_residual": False}),
    ("starcoder2", LAYER_NORMS),
    ("command-r", LAYER_NORMS),
    ("granite", {"logit_scale": 8.0, "residual_scale": 0.22, "embedding_scale": 12.0}),
    ("granitemoe", {"logit_scale": 8.0, "expert_shared_feed_forward_length": 64, **EXPERTS}),
    ("glm4moe", SHARED),
    ("deepseek2", UNPACKED),
    ("deepseek2", ABSORBED),
    ("llama4", {**WIDE_EXPERTS, "interleave_moe_layer_step": 2}),
    ("gpt-oss", {**WIDE_EXPERTS, "attention__sliding_window": 8}),
    ("gemma3", {}),
    ("gemma3", SLIDING),
]
OTHERS = [
    ("gemma4", GEMMA4),
    ("gemma4", {**GEMMA4, "embedding_length_per_layer_input": 16}),
    ("mamba", MAMBA),
    ("falcon-h1", FALCON_H1),
    ("qwen35", QWEN35),
    ("qwen35moe", {**QWEN35, **WIDE_EXPERTS, "expert_shared_feed_forward_length": 64}),
]
"""Architectures with layers that have no attention, or with inputs that have no name."""

NEVER_TIED = {"olmoe", "gptneox", "gpt-oss"}
"""Architectures whose files must have an output."""

every_model = pytest.mark.parametrize(("arch", "numbers"), MODELS)
every_decoder = pytest.mark.parametrize(("arch", "numbers"), MODELS + OTHERS)


def planned(tmp_path, arch, numbers, absent=(), **options):
    with made_header(tmp_path, arch, absent=absent, **numbers) as file:
        planner = planner_of(file, **options)
        return planner, planner.plan(Batch.PROMPT, BatchShape(5, 256, 2)).built


def test_each_architecture_has_a_line_and_a_file_that_others_may_share():
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}

    assert set(ARCHITECTURES.files.values()) == files
    for name, arch in ARCHITECTURES.items():
        assert arch.name == name
        assert arch.build.__module__.rpartition(".")[2] == ARCHITECTURES.files[name]


def test_a_name_has_one_line():
    with pytest.raises(ValueError, match="two lines for storm"):
        ArchitectureTable([("storm", "llama"), ("storm", "qwen2")])


def test_a_file_is_read_when_its_architecture_is_asked_for():
    program = (
        "import sys; from engine.model.generic import ARCHITECTURES as found;"
        "print(*(name for name in sys.modules if name.startswith('engine.model.arch.')));"
        "print(found['gpt-oss'].build.__module__, 'gpt-oss' in found, 'storm' in found, len(found))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    n_known = len(ARCHITECTURES)
    assert done.stdout == f"\nengine.model.arch.gpt_oss True False {n_known}\n"


def test_an_unknown_architecture_is_named_beside_those_that_are_known():
    with pytest.raises(ModelError) as caught:
        find_architecture("storm")

    assert caught.value.title.startswith("This version has no graph for storm models.")
    assert caught.value.hint == f"It has graphs for {', '.join(ARCHITECTURES)}."


@every_decoder
def test_a_graph_uses_every_weight_for_the_operation_that_chose_its_home(tmp_path, arch, numbers):
    # Of two sets of factors a graph uses one; a place for sinks is chosen as if they were scaled.
    unused = {"rope_factors_long.weight", "attn_sinks.weight", "cls.output.weight"}
    kinds = find_architecture(arch).weights(read(tmp_path, arch, **numbers))

    planner, graph = planned(tmp_path, arch, numbers)

    uses = {(source, node.op) for node in graph.graph.nodes for source in node.src}
    tensors = planner.weights.tensors
    there = [kind for kind in kinds if kind.role in tensors]
    missing = [k.role for k in there if (tensors[k.role], k.op) not in uses]
    assert {role.rpartition("blk.0.")[2].rpartition("blk.1.")[2] for role in missing} <= unused


ENCODERS: list[tuple[str, Any]] = [("bert", ENCODER), ("nomic-bert", ENCODER)]

UNREAD = {
    "rope_factors_long.weight", "rope_factors_short.weight",
    "cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias",
}  # fmt: skip
"""Of two sets of factors a graph reads one, and of a classifier that ranks texts nothing."""


@pytest.mark.parametrize(("arch", "numbers"), MODELS + OTHERS + ENCODERS)
def test_whatever_optional_tensors_a_file_has_are_read_or_refused(tmp_path, arch, numbers):
    """One at a time is there or not, beside all others: nothing is loaded for nothing."""
    kinds = find_architecture(arch).weights(read(tmp_path, arch, **numbers))
    stand_in = {name for kind in kinds for name in (kind.unless, *kind.given)}
    wanted = {kind.name for kind in kinds if not kind.required or kind.name in stand_in}
    optional = {re.sub(r"^blk\.\d+\.", "", name) for name in wanted if name}
    for name in optional:
        for change in ({"absent": [name]}, {"merged": [name]}):
            with made_header(tmp_path, arch, **change, **numbers) as file:
                assert _unread(file) <= UNREAD
    for name in wanted & stand_in:
        ne = next(kind.ne for kind in kinds if kind.name == name)
        with made_header(tmp_path, arch, extra={name: ne}, **numbers) as file:
            assert _unread(file) <= UNREAD


def _unread(file):
    """The weights that no node reads; none where the file is refused for one that is left over."""
    try:
        planner = planner_of(file)
    except ModelError as error:
        if "which no layer uses" not in error.title and "has no tensor" not in error.title:
            raise
        return set()
    graph = planner.plan(Batch.PROMPT, planner.run_shape(5, 0)).built.graph
    read_there = {source for node in graph.nodes for source in node.src}
    views = {source.view_src for source in read_there}
    loaded = set(planner.weights.tensors.values())
    return {tensor.name for tensor in loaded - read_there - views}


@pytest.mark.parametrize(
    ("arch", "numbers"), [m for m in MODELS + OTHERS if m[0] not in NEVER_TIED]
)
def test_tied_embeddings_serve_as_the_output(tmp_path, arch, numbers):
    planner, graph = planned(tmp_path, arch, numbers, absent=("output.weight",))

    embeddings = planner.weights.tensors["token_embd.weight"]
    last = [node for node in graph.graph.nodes if node.op is Op.MUL_MAT][-1]
    assert last.src[0] is embeddings


@pytest.mark.parametrize(("arch", "numbers"), [m for m in MODELS if m[0] in NEVER_TIED])
def test_an_output_that_cannot_be_tied_is_named_where_it_is_absent(tmp_path, arch, numbers):
    with pytest.raises(ModelError) as caught:
        planned(tmp_path, arch, numbers, absent=("output.weight",))

    assert caught.value.title == "The model has no tensor output.weight."


@every_decoder
def test_logits_are_of_the_rows_that_were_asked_for(tmp_path, arch, numbers):
    _, graph = planned(tmp_path, arch, numbers)

    assert graph.logits.ne == (96, 2, 1, 1)
    assert graph.logits.name == "result_output"
    assert graph.graph.nodes[-1] is graph.logits


@every_model
@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_inputs_are_leafs_that_are_marked(tmp_path, arch, numbers, flash_attn):
    _, graph = planned(tmp_path, arch, numbers, flash_attn=flash_attn)

    marked = {leaf for leaf in graph.graph.leafs if leaf.flags & Flag.INPUT}
    assert marked == set(graph.inputs.values())
    assert all(tensor.name == key.kind.value for key, tensor in graph.inputs.items())


@every_decoder
def test_the_norms_of_layers_may_be_pinned_in_order(tmp_path, arch, numbers):
    _, graph = planned(tmp_path, arch, numbers)

    assert [node.name for node, _ in graph.layer_norms] == [
        f"norm-{il}" for _, il in graph.layer_norms
    ]
    named = [node for node in graph.graph.nodes if node.name.startswith("norm-")]
    assert {node for node, _ in graph.layer_norms} == set(named)


@every_model
@pytest.mark.parametrize(("flash_attn", "op"), [("on", Op.FLASH_ATTN_EXT), ("off", Op.CONT)])
def test_each_layer_tells_where_its_attention_is_computed(tmp_path, arch, numbers, flash_attn, op):
    _, graph = planned(tmp_path, arch, numbers, flash_attn=flash_attn)

    fused, plain = graph.attentions, graph.host_attentions
    told, other = (fused, plain) if flash_attn == "on" else (plain, fused)
    assert [(node.op, il) for node, il in told] == [(op, 0), (op, 1)]
    assert other == ()


@every_decoder
def test_a_graph_of_one_token_has_the_nodes_of_a_prompts(tmp_path, arch, numbers):
    one = built(tmp_path, arch, n_tokens=1, **numbers)
    many = built(tmp_path, arch, n_tokens=7, **numbers)

    assert [(n.op, n.name) for n in one.graph.nodes] == [(n.op, n.name) for n in many.graph.nodes]
