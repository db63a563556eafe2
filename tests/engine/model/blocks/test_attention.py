"""Attention: what is written and read, rotation of a quantised cache, values as they lie."""

import pytest

from engine.core.ops import Op
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import built, made_header, names, planner_of

BIASES = tuple(
    f"blk.{il}.{name}.bias"
    for il in range(2)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up")
)
PLAIN = (*BIASES, "rope_freqs.weight")


def attention_names(tmp_path, **options):
    """Return the nodes of the first layer from its first matmul to the output projection."""
    layer = names(built(tmp_path, "llama", absent=PLAIN, options=options), 0)
    return layer[2 : layer.index("MUL_MAT:attn_out-0") + 1]


def test_a_quantised_cache_is_written_and_read_rotated(tmp_path):
    assert attention_names(tmp_path, cache_type_k="q8_0", cache_type_v="q8_0") == [
        "MUL_MAT:Qcur-0", "RESHAPE:Qcur-0", "ROPE:Qcur-0", "RESHAPE:Qcur-0 (reshaped)",
        "MUL_MAT:node_7", "RESHAPE: (reshaped)",
        "MUL_MAT:Vcur-0", "RESHAPE:Vcur-0", "RESHAPE:Vcur-0 (reshaped)", "MUL_MAT:node_12",
        "RESHAPE: (reshaped)",
        "MUL_MAT:Kcur-0", "RESHAPE:Kcur-0", "ROPE:Kcur-0", "RESHAPE:Kcur-0 (reshaped)",
        "MUL_MAT:node_18", "RESHAPE: (reshaped)",
        "VIEW: (reshaped) (view)", "SET_ROWS:cache_k_l0 (view)",
        "VIEW: (reshaped) (view)", "SET_ROWS:cache_v_l0 (view)",
        "VIEW: (reshaped) (view)", "PERMUTE: (reshaped) (view) (permuted)",
        "VIEW:cache_k_l0 (view)", "PERMUTE:cache_k_l0 (view) (permuted)",
        "VIEW:cache_v_l0 (view)", "PERMUTE:cache_v_l0 (view) (permuted)",
        "FLASH_ATTN_EXT:node_30", "RESHAPE:kqv_out-0", "RESHAPE:kqv_out-0 (reshaped)",
        "MUL_MAT:node_33", "RESHAPE: (reshaped)", "MUL_MAT:attn_out-0",
    ]  # fmt: skip


def test_rotation_matrices_are_inputs(tmp_path):
    options = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    sizes = {"attention__key_length": 128, "attention__value_length": 128}

    graph = built(tmp_path, "llama", options=options, **sizes)

    k, v = (graph.inputs[InputKey(k)] for k in (InputKind.K_ROTATION, InputKind.V_ROTATION))
    assert (k.ne, v.ne) == ((128, 128, 1, 1), (64, 64, 1, 1))
    assert k.type is v.type is TensorType.F32


def test_quantised_keys_alone_leave_values_unrotated(tmp_path):
    found = built(tmp_path, "llama", options={"cache_type_k": "q4_0"}).inputs

    assert InputKey(InputKind.K_ROTATION) in found
    assert InputKey(InputKind.V_ROTATION) not in found


def test_each_part_of_a_cache_is_rotated_by_a_matrix_of_its_own(tmp_path):
    numbers = {"attention__sliding_window": 8, "attention__sliding_window_pattern": 2}

    graph = built(tmp_path, "gemma3", options={"cache_type_k": "q8_0"}, **numbers)

    assert {key.part for key in graph.inputs if key.kind is InputKind.K_ROTATION} == {0, 1}


def test_rows_of_a_quantised_cache_are_read_by_blocks(tmp_path):
    graph = built(tmp_path, "llama", options={"cache_type_k": "q8_0"})

    keys = graph.attentions[0][0].src[1]
    assert (keys.type, keys.ne) == (TensorType.Q8_0, (64, 256, 2, 1))
    assert keys.nb == (34, 4 * 34, 2 * 34, 512 * 4 * 34)


def test_values_that_are_not_transposed_are_turned_for_the_product(tmp_path):
    """A probe turned flash attention off after the cache was made for it."""
    with made_header(tmp_path, "llama", absent=PLAIN) as file:
        planner = planner_of(file, ("GPU0:gpu:8192:noops=FLASH_ATTN_EXT", "CPU:cpu:16384"))
    layer = names(next(iter(planner.reserved.values())).built, 0)

    start = layer.index("SET_ROWS:cache_k_l0 (view)")
    assert layer[start + 1 : layer.index("MUL_MAT:attn_out-0")] == [
        "VIEW:Vcur-0 (view)", "SET_ROWS:cache_v_l0 (view)",
        "VIEW:cache_v_l0 (view)", "PERMUTE:cache_v_l0 (view) (permuted)",
        "TRANSPOSE:cache_v_l0 (view) (permuted) (transposed)", "CONT:v_cont-0",
        "VIEW:cache_k_l0 (view)", "PERMUTE:cache_k_l0 (view) (permuted)",
        "VIEW:Qcur-0 (view)", "PERMUTE:Qcur-0 (view) (permuted)",
        "MUL_MAT:kq-0", "SOFT_MAX:kq_soft_max-0", "MUL_MAT:kqv-0", "PERMUTE:kqv-0 (permuted)",
        "CONT:kqv_out-0",
    ]  # fmt: skip


@pytest.mark.parametrize(("flash_attn", "mask_type"), [("on", "f16"), ("off", "f32")])
def test_a_mask_has_the_type_that_its_operation_wants(tmp_path, flash_attn, mask_type):
    graph = built(tmp_path, "llama", options={"flash_attn": flash_attn})

    assert graph.inputs[InputKey(InputKind.KQ_MASK)].type.label == mask_type


def test_narrow_values_are_padded_to_the_width_of_a_transposed_cache(tmp_path):
    numbers = {"attention__head_count_kv": [2, 1]}

    graph = built(tmp_path, "llama", options={"flash_attn": "off"}, **numbers)

    (padded,) = [node for node in graph.graph.nodes if node.op is Op.PAD]
    assert (padded.src[0].ne[0], padded.ne[0]) == (64, 128)
    written = [n for n in graph.graph.nodes if n.op is Op.SET_ROWS and "cache_v" in n.name]
    assert [node.src[0].ne[:2] for node in written] == [(1, 3 * 128), (1, 3 * 128)]
    read = [node.src[0] for node in graph.graph.nodes if node.name in ("kqv-0", "kqv-1")]
    assert [values.ne for values in read] == [(256, 64, 2, 1), (256, 64, 1, 1)]
