from __future__ import annotations

import pytest

from engine.trace.export.labels import Row, label, label_key, measured_args, run_args
from engine.trace.export.meta import TraceMeta


def rows_of(snapshot) -> list[Row]:
    return [Row(*values) for values in snapshot.spans().tolist()[:11]]


def test_a_slice_is_named_as_in_the_plan(meta, snapshot):
    names = [label(meta, row).name for row in rows_of(snapshot)]

    assert names == [
        "OpenCL0#inp_tokens#0", "attn_norm-0 +3", "wait for OpenCL0", "CPU#ffn_norm-0#0",
        "MUL_MAT ffn_up-0", "unnamed", "ffn_up-0", "OpenCL0#ffn_up-0#0",
        "OpenCL0#ffn_down.weight#0", "ffn_out-0", "prompt 0",
    ]  # fmt: skip


def test_what_the_plan_does_not_know_is_named_by_number(snapshot):
    names = [label(TraceMeta(), row).name for row in rows_of(snapshot)]

    assert names == [
        "copy 0", "split 0", "wait for lane 0", "copy 1", "node 0", "node 1", "split 1",
        "copy 2", "copy 3", "split 2", "prompt 0",
    ]  # fmt: skip


def test_a_copy_says_what_from_where_for_whom_and_how_fast(meta, snapshot):
    row = rows_of(snapshot)[7]

    assert label(meta, row).args | measured_args(row) == {
        "copy": 2, "from": "CPU", "into": "OpenCL0", "what": "activation", "split": 2,
        "plan": 3, "step": 0, "bytes": 1 << 20, "MiB/s": 1e6, "GB/s": 1048.576,
    }  # fmt: skip


@pytest.mark.parametrize(("i_row", "what"), [(0, "user input"), (3, "activation"), (8, "weight")])
def test_a_copy_says_what_kind_of_thing_was_copied(meta, snapshot, i_row, what):
    assert label(meta, rows_of(snapshot)[i_row]).args["what"] == what


def test_a_copy_that_took_no_time_has_no_bandwidth(snapshot):
    assert "MiB/s" not in measured_args(rows_of(snapshot)[3])


def test_a_node_says_why_it_is_there(meta, snapshot):
    known, unknown = rows_of(snapshot)[4:6]

    assert label(meta, known).args == {
        "node": 0, "op": "MUL_MAT", "split": 1, "cause": "1.wgt0", "plan": 3
    }  # fmt: skip
    assert label(meta, unknown).args == {"node": 1, "plan": 3}


def test_a_converted_clock_is_told(meta, snapshot):
    args = label(meta, rows_of(snapshot)[1]).args

    assert args["clock"] == "device clock, mapped to the host's"
    assert args["nodes"] == 4


def test_a_step_says_its_tokens_and_speed(snapshot):
    row = rows_of(snapshot)[10]

    assert measured_args(row) == {"step": 0, "tokens": 7, "tokens/s": 875_000.0}
    assert "tokens/s" not in measured_args(row._replace(end_ns=row.start_ns))


def test_labels_of_one_key_are_equal(meta, snapshot):
    by_key = {}
    for values in snapshot.spans().tolist():
        row = Row(*values)
        assert by_key.setdefault(label_key(row), label(meta, row)) == label(meta, row)


def test_the_whole_trace_says_how_it_was_made(meta, snapshot):
    args = run_args(meta, snapshot, 77)

    assert args["command"] == 'python -m engine run -ngl 1 "a b"'
    assert args["option n_gpu_layers"] == "1"
    assert (args["clock_origin_ns"], args["lost_spans"]) == (77, 4)
    assert "command" not in run_args(TraceMeta(), snapshot, 0)
