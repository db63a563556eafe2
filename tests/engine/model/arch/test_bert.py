"""bert and nomic-bert: attention over a whole text, norms after, pooled embeddings."""

import pytest

from engine.core.ops import Op
from engine.core.plan import Batch, MemoryKind
from engine.core.types import TensorType
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import made_header, planner_of, read
from tests.engine.model.made_numbers import ENCODER

both = pytest.mark.parametrize("arch", ["bert", "nomic-bert"])


def planned(folder, arch, n_tokens=5, absent=(), merged=(), options=None, **numbers):
    numbers = {**ENCODER, **numbers}
    with made_header(folder, arch, absent=absent, merged=merged, **numbers) as file:
        planner = planner_of(file, **(options or {}))
        shape = planner.run_shape(n_tokens, 0)
        return planner, planner.plan(Batch.PROMPT, shape).built


@both
def test_there_is_no_cache_and_no_head(tmp_path, arch):
    planner, graph = planned(tmp_path, arch)

    assert not planner.cache.keys
    assert MemoryKind.KV not in {row.kind for row in planner.plan_set().memory.rows}
    assert graph.logits.name == "result_embd_pooled"


@both
@pytest.mark.parametrize(
    ("flash_attn", "mask_type"), [("on", TensorType.F16), ("off", TensorType.F32)]
)
def test_a_text_sees_itself(tmp_path, arch, flash_attn, mask_type):
    _, graph = planned(tmp_path, arch, options={"flash_attn": flash_attn})

    mask = graph.inputs[InputKey(InputKind.SELF_MASK)]
    assert (mask.name, mask.type, mask.ne) == ("self_kq_mask", mask_type, (5, 5, 1, 1))


@both
def test_with_flash_attention_keys_and_values_are_cast(tmp_path, arch):
    _, graph = planned(tmp_path, arch, options={"flash_attn": "on"})

    node, _ = graph.attentions[0]
    keys = node.src[1]
    assert (keys.op, keys.type) == (Op.CPY, TensorType.F16)
    assert keys.src[1] is keys


@both
@pytest.mark.parametrize(
    ("pooling", "op", "n_rows"),
    [(0, Op.ADD, 5), (1, Op.MUL_MAT, 1), (2, Op.GET_ROWS, 1), (3, Op.GET_ROWS, 1)],
)
def test_embeddings_are_pooled_as_the_file_says(tmp_path, arch, pooling, op, n_rows):
    _, graph = planned(tmp_path, arch, pooling_type=pooling)

    assert (graph.logits.op, graph.logits.ne[:2]) == (op, (256, n_rows))


@pytest.mark.parametrize(
    ("wish", "op"), [("none", Op.ADD), ("mean", Op.MUL_MAT), ("last", Op.GET_ROWS)]
)
def test_embeddings_are_pooled_as_asked(tmp_path, wish, op):
    planner, graph = planned(tmp_path, "bert", options={"pooling": wish})

    assert graph.logits.op is op
    assert planner.model.pooling.name.lower() == wish


def test_the_worst_case_has_as_many_texts_as_the_embedding_tool_allows(tmp_path):
    planner, _ = planned(tmp_path, "bert", options={"n_ubatch": 300})

    prompt, token = planner.worst_shape(Batch.PROMPT), planner.worst_shape(Batch.TOKEN)
    assert (prompt.n_tokens, prompt.n_outputs, prompt.n_seqs) == (512, 512, 256)
    assert (token.n_tokens, token.n_seqs) == (256, 256)


def test_the_output_has_room_for_logits_and_embeddings_of_every_text(tmp_path):
    planner, _ = planned(tmp_path, "bert")

    rows = {row.kind: row.n_bytes for row in planner.plan_set().memory.rows}
    assert rows[MemoryKind.OUTPUT] == (96 + 256) * 256 * 4


def test_bert_adds_embeddings_of_type_and_position(tmp_path):
    _, graph = planned(tmp_path, "bert")

    first = [(n.op_desc, n.name) for n in graph.graph.nodes[:5]]
    assert first == [
        ("GET_ROWS", "embd"), ("GET_ROWS", "node_1"), ("VIEW", "token_types.weight (view)"),
        ("ADD", "node_3"), ("ADD", "inp_embd"),
    ]  # fmt: skip
    assert not [n for n in graph.graph.nodes if n.op is Op.ROPE]


def test_nomic_bert_rotates_and_gates_instead(tmp_path):
    _, graph = planned(tmp_path, "nomic-bert")

    ops = [n.op_desc for n in graph.graph.nodes]
    assert ops.count("ROPE") == 4
    assert (ops.count("SWIGLU"), ops.count("GELU")) == (2, 0)


@both
def test_queries_keys_and_values_may_be_one_matrix(tmp_path, arch):
    _, graph = planned(tmp_path, arch, merged=["attn_qkv.weight"])

    assert [n.name for n in graph.graph.nodes if n.name.startswith("wqkv-")] == ["wqkv-0", "wqkv-1"]


@both
def test_token_types_may_be_absent(tmp_path, arch):
    _, graph = planned(tmp_path, arch, absent=["token_types.weight"])

    assert not [n for n in graph.graph.nodes if n.name.startswith("token_types")]


@both
def test_the_norm_of_the_embeddings_is_the_first_layers(tmp_path, arch):
    _, graph = planned(tmp_path, arch)

    node, il = graph.layer_norms[0]
    assert (node.name, il) == ("norm-0", 0)
    assert node.src[0].name == "inp_embd"


@both
@pytest.mark.parametrize(
    ("numbers", "key", "found"),
    [
        ({"pooling_type": 5}, "{}.pooling_type", "5"),
        ({"pooling_type": -1}, "{}.pooling_type", "-1"),
        ({"attention__layer_norm_epsilon": None}, "{}.attention.layer_norm_epsilon", "missing"),
        ({"attention__causal": 1}, "{}.attention.causal", "1"),
        ({"tokenizer__ggml__token_type_count": None}, "tokenizer.ggml.token_type_count", "missing"),
        ({"tokenizer__ggml__token_type_count": 0}, "tokenizer.ggml.token_type_count", "0"),
        ({"attention__head_count": 3}, "{}.attention.head_count", "3"),
        ({"pooling_type": "mean"}, "{}.pooling_type", "mean"),
        ({"pooling_type": True}, "{}.pooling_type", "True"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path, arch, numbers, key, found):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, arch, **{**ENCODER, **numbers})

    assert caught.value.title == f"The key {key.format(arch)} cannot be used."
    assert f"It is {found}" in caught.value.sentence


def test_heads_that_nothing_turns_may_have_an_odd_size(tmp_path):
    odd = {"attention__key_length": 21, "attention__value_length": 21, "attention__head_count": 3}

    assert read(tmp_path, "bert", **{**ENCODER, **odd}).layers[0].n_embd_head_k == 21
    with pytest.raises(ModelError, match="key_length"):
        read(tmp_path, "nomic-bert", **{**ENCODER, **odd})


@both
def test_a_model_that_ranks_is_refused_unless_another_pooling_is_asked_for(tmp_path, arch):
    with pytest.raises(ModelError, match=r"ranks texts.*pooling_type is 4"):
        planned(tmp_path, arch, pooling_type=4)

    planner, graph = planned(tmp_path, arch, pooling_type=4, options={"pooling": "mean"})

    assert graph.logits.op is Op.MUL_MAT
    assert planner.hparams.pooling.name == "RANK"


def test_the_head_of_a_model_that_ranks_is_loaded_and_not_used(tmp_path):
    head = {
        "cls.weight": (256, 256), "cls.bias": (256,), "cls.output.weight": (256, 1),
        "cls.output.bias": (1,),
    }  # fmt: skip
    with made_header(tmp_path, "bert", extra=head, **ENCODER) as file:
        assert set(head) <= set(planner_of(file).weights.tensors)


def test_a_table_of_positions_of_another_length_is_named(tmp_path):
    short = {"position_embd.weight": (256, 16)}

    with (
        made_header(tmp_path, "bert", extra=short, **ENCODER) as file,
        pytest.raises(ModelError, match=r"position_embd\.weight does not fit") as caught,
    ):
        planner_of(file)

    assert caught.value.sentence == "Its shape is [256, 16, 1, 1]; they ask for [256, 2048, 1, 1]."
