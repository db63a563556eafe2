import pytest
from PySide6.QtCore import Qt

from app.models.cells import MARK_ROLE, Mark
from app.models.op_matrix_model import (
    N_FIXED,
    OP,
    PROMPT,
    OpMatrixModel,
    OpMatrixRows,
    Shown,
    error_text,
    matrix_text,
    row_words,
    verdict_words,
)
from app.theme.text import MINUS
from tests.app.models import paper_run
from tests.app.models.op_facts import FAILED, MATRIX, OK


def words(text):
    """The text with ordinary spaces, and with signs that are on every keyboard."""
    return paper_run.words(text).replace(MINUS, "-")


OPENCL, CPU = N_FIXED, N_FIXED + 1


@pytest.fixture
def model(qapp):
    model = OpMatrixModel()
    model.set_matrix(MATRIX)
    return model


@pytest.fixture
def rows(model):
    return OpMatrixRows(model)


def column(rows, section):
    return [words(rows.index(row, section).data()) for row in range(rows.rowCount())]


def test_the_models_keep_qts_rules(qtmodeltester, model, rows):
    qtmodeltester.check(model)
    qtmodeltester.check(rows)


def test_a_cell_has_the_verdict_the_error_and_how_long_it_takes(rows):
    assert column(rows, OPENCL) == ["ok 1.2e-9, 34 µs", "wrong 3.1e-2", "failed", "not supported"]
    assert column(rows, CPU) == ["ok 1.2e-9, 34 µs", "ok 1.2e-9, 34 µs", "ok 0", "not checked"]


def test_faults_stand_out_and_what_was_not_computed_is_pale(rows):
    marks = [rows.index(row, OPENCL).data(MARK_ROLE) for row in range(4)]

    assert marks == [None, Mark.ALERT, Mark.ALERT, Mark.MUTED]


@pytest.mark.parametrize(
    ("shown", "ops"),
    [
        (Shown.ALL, ["MUL_MAT", "ROPE", "SOFT_MAX", "GET_ROWS"]),
        (Shown.FAULTS, ["ROPE", "SOFT_MAX"]),
        (Shown.UNSUPPORTED, ["GET_ROWS"]),
    ],
)
def test_rows_can_be_narrowed_down(rows, shown, ops):
    rows.show_rows(shown)

    assert column(rows, OP) == ops


def test_a_devices_column_is_sorted_with_its_faults_first(rows):
    rows.sort(OPENCL)

    assert column(rows, OP) == ["SOFT_MAX", "ROPE", "MUL_MAT", "GET_ROWS"]


def test_counts_are_sorted_as_numbers(rows):
    rows.sort(PROMPT, Qt.SortOrder.DescendingOrder)

    assert column(rows, PROMPT)[0] == "60"


def test_all_of_a_verdict_is_said_with_its_bar_and_its_speed():
    assert words(verdict_words("CPU", OK)) == (
        "CPU: ok, error 1.2e-9, at most 1.0e-7 is allowed\n"
        "median 34 µs, quartiles 5 % apart, n = 12; 10.0 GB/s, 2.0 GFLOP/s"
    )
    assert verdict_words("GPU", FAILED) == "GPU: failed\nits process ended\nSIGSEGV"


def test_a_bar_of_nothing_means_bit_for_bit():
    text = row_words(MATRIX, MATRIX.rows[2])

    assert "CPU: ok, error 0, values must be the same" in text


@pytest.mark.parametrize(("error", "text"), [(0.0, "0"), (1.24e-9, "1.2e-9"), (31.0, "3.1e1")])
def test_an_error_has_two_digits_and_a_power_of_ten(error, text):
    assert words(error_text(error)) == text


def test_what_is_shown_is_copied_as_a_table(rows):
    rows.show_rows(Shown.FAULTS)

    lines = matrix_text(MATRIX, rows.rows()).split("\n")

    assert lines[0] == "operation\ttype\tshape\tin a prompt\tin a token\tOpenCL0\tCPU"
    assert [line.split("\t")[0] for line in lines[1:]] == ["ROPE", "SOFT_MAX"]


def test_no_matrix_is_an_empty_table(model):
    model.set_matrix(None)

    assert model.rowCount() == 0
    assert model.columnCount() == N_FIXED
