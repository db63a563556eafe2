"""What checking operations found, summed up."""

import dataclasses
import json

import pytest

from engine.cli.output import plain
from engine.core.op_matrix import OpMatrix, OpRow, OpSpeed, OpState, OpVerdict

OK, WRONG, FAILED, REFUSED, LATER = (
    OpVerdict(OpState.OK, 1e-7, 1e-9), OpVerdict(OpState.WRONG, 1e-7, 0.5, "error 0.5"),
    OpVerdict(OpState.FAILED, 1e-7, reason="it raised"), OpVerdict(OpState.NOT_SUPPORTED, 1e-7),
    OpVerdict(OpState.NOT_CHECKED, 1e-7),
)  # fmt: skip


def matrix(*columns):
    """One device a column; every row is of the same operation and type."""
    rows = zip(*columns, strict=True)
    devices = tuple(f"D{i}" for i in range(len(columns)))
    return OpMatrix(devices, tuple(OpRow("ADD", "f32", str(i), row) for i, row in enumerate(rows)))


def test_faults_are_what_is_wrong_and_what_failed():
    found = matrix([OK, WRONG, REFUSED], [FAILED, LATER, OK])

    assert found.n_faults == 2
    assert found.verdicts("D1") == (FAILED, LATER, OK)


def test_a_sum_counts_states_and_keeps_the_worst():
    (first, second) = matrix([OK, WRONG, REFUSED], [LATER, FAILED, OK]).sums()

    assert (first.n_cases, first.n_supported, first.n_faults, first.worst) == (3, 2, 1, WRONG)
    assert (second.n_supported, second.n_faults, second.n_unchecked) == (2, 1, 1)
    assert second.worst is OK


def test_the_worst_is_the_one_nearest_to_its_own_bar():
    lax, strict = OpVerdict(OpState.OK, 5e-4, 1e-5), OpVerdict(OpState.OK, 1e-7, 9e-8)

    (only,) = matrix([lax, strict, OK]).sums()

    assert only.worst is strict


def test_sums_keep_operations_and_types_apart():
    rows = tuple(OpRow(op, kind, "", (OK,)) for op in ("ADD", "MUL") for kind in ("f32", "f16"))

    sums = OpMatrix(("D",), (*rows, *rows)).sums()

    assert [(each.op, each.type, each.n_cases) for each in sums] == [
        ("ADD", "f32", 2), ("ADD", "f16", 2), ("MUL", "f32", 2), ("MUL", "f16", 2),
    ]  # fmt: skip


def test_speeds_follow_from_the_middle_time():
    speed = OpSpeed(median_ns=2000.0, spread=0.1, n_runs=9, n_bytes=50_000, n_flops=8_000_000)

    assert speed.gb_per_s == 25.0
    assert speed.gflop_per_s == pytest.approx(4000.0)


def test_it_can_be_written_as_json():
    timed = dataclasses.replace(OK, speed=OpSpeed(1.0, 0.0, 3, 4))

    written = json.loads(json.dumps(plain(matrix([timed, WRONG]))))

    assert written["devices"] == ["D0"]
    assert written["rows"][0]["verdicts"][0]["speed"]["n_runs"] == 3
    assert written["rows"][1]["verdicts"][0]["state"] == "wrong"
