import numpy as np

from app.views.graph.columns import Role, _merge, first_interesting_node, shape_of
from app.views.graph.names import TIMES, head_of, role_of
from tests.app.models.paper_run import plans, small_plans

WEIGHT = f"{TIMES}w"
LLAMA = f"norm {WEIGHT} Q rope V K rope k→ v→ attn out rows rows + norm {WEIGHT} gate up glu down +"


def shape():
    return shape_of(plans().prompt, 30)


def test_llama_columns_stand_in_execution_order_under_short_heads():
    columns = shape().columns

    assert " ".join(column.head.word for column in columns) == LLAMA
    units = {column.head.word: column.units for column in columns}
    assert [units[word] for word in ("Q", "attn", "glu", "rows", "+")] == [2.1, 2.1, 1.5, 0.6, 1.0]


def test_columns_fall_into_attention_and_feed_forward():
    groups = [(group.title, group.start, group.stop) for group in shape().groups]

    assert groups == [("attention", 0, 13), ("feed-forward", 13, 21)]


def test_only_the_last_layer_has_the_rows_that_are_kept():
    cells = shape()

    extra = [i for i, column in enumerate(cells.columns) if column.is_extra]
    assert extra == [11, 12]
    assert set(cells.row[np.isin(cells.column, extra) & (cells.row > 0)]) == {30}


def test_every_computed_node_has_one_cell_and_views_have_none():
    plan, cells = plans().prompt, shape()

    assert cells.n_cells == plan.n_computed == 576
    assert len({(r, c) for r, c in zip(cells.row, cells.column, strict=True)}) == 576
    assert cells.cell_of_node(4) == -1
    assert cells.cell_of_node(5) == 4


def test_in_and_out_hold_what_is_outside_the_layers():
    plan, cells = plans().prompt, shape()

    def names(row):
        return [plan.name[plan.slot(int(cells.node_id[c]))] for c in cells.cells_of_row(row)]

    assert names(0) == ["embd"]
    assert names(31) == ["norm", "result_norm", "result_output"]
    assert [cells.row_label(row) for row in (0, 1, 30, 31)] == ["in", "0", "29", "out"]


def test_cuts_can_be_where_a_weight_or_the_cache_is_involved():
    can_cut = [c.head.word for c in shape().columns if c.can_cut]

    assert " ".join(can_cut) == f"{WEIGHT} Q V K k→ v→ attn out {WEIGHT} gate up down"


def test_places_do_not_depend_on_the_placement():
    one, other = shape(), shape_of(small_plans().prompt, 30)

    assert np.array_equal(one.row, other.row)
    assert np.array_equal(one.column, other.column)
    assert one.columns == other.columns


def test_layers_of_two_kinds_share_the_columns_they_have_in_common():
    attention = [Role("norm", "RMS_NORM"), Role("Qcur", "MUL_MAT"), Role("ffn_out", "MUL_MAT")]
    recurrent = [Role("norm", "RMS_NORM"), Role("conv", "SSM_CONV"), Role("ffn_out", "MUL_MAT")]

    merged, places, kinds = _merge([recurrent, attention, recurrent, recurrent])

    assert merged == [recurrent[0], recurrent[1], attention[1], recurrent[2]]
    assert places == [[0, 1, 3], [0, 2, 3], [0, 1, 3], [0, 1, 3]]
    assert kinds == [0, 1, 0, 0]


def test_a_repeated_role_stays_beside_its_neighbour():
    norm, mul = Role("norm", "RMS_NORM"), Role("w", "MUL")
    longer = [norm, mul, norm, mul, norm]

    _, places, _ = _merge([longer, longer, [norm, mul]])

    assert places[2] == [0, 1]


def test_roles_lose_the_layer_and_keep_the_rest():
    assert role_of("Qcur-12") == "Qcur"
    assert role_of("cache_k_l0 (view)") == "cache_k (view)"
    assert role_of("node_923") == ""
    assert role_of("ffn_moe_gate-3") == "ffn_moe_gate"


def test_unknown_operations_keep_their_own_name():
    assert head_of("ffn_moe_weighted_sum", "DIV").word == "weighted_sum"
    assert head_of("", "CLAMP").word == "clamp"
    assert head_of("cache_s (view)", "CPY").name == "s→state"


def test_the_first_question_is_about_the_first_cpu_operation_of_a_layer():
    plan = plans().prompt

    node_id = first_interesting_node(plan)

    assert plan.name[plan.slot(node_id)] == "cache_k_l0 (view)"


def test_without_cpu_layers_the_first_question_is_about_the_input():
    plan = small_plans().prompt

    assert plan.name[plan.slot(first_interesting_node(plan))] == "embd"
