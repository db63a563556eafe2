from PySide6.QtCore import Qt

from app.models.candidates_model import BACKEND_ROLE, FAILED_ROLE, CandidatesModel
from engine.core.explain import explain
from tests.app.models import paper_run


def model_of(node_id):
    table = paper_run.plans().prompt
    model = CandidatesModel()
    model.set_explanation(explain(table, table.slot(node_id)))
    return model


def cells(model):
    return [
        [model.index(row, column).data() for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]


def test_the_model_keeps_qts_contract(qtmodeltester):
    qtmodeltester.check(model_of(24))


def test_a_row_has_the_device_its_answers_and_its_priority():
    model = model_of(12)

    assert cells(model) == [["OpenCL0", "✓", "✕", "\u2013", "0"], ["CPU", "✓", "✓", "\u2013", "1"]]


def test_the_first_failed_test_is_marked_and_no_other():
    model = model_of(12)

    failed = [
        (row, column)
        for row in range(2)
        for column in range(model.columnCount())
        if model.index(row, column).data(FAILED_ROLE)
    ]

    assert failed == [(0, 2)]
    assert model.index(0, 0).data(BACKEND_ROLE) == 0


def test_a_screen_reader_hears_the_answer_in_words():
    model = model_of(12)
    cell = model.index(0, 2)

    said = cell.data(Qt.ItemDataRole.AccessibleTextRole)

    assert said == "OpenCL0, supports_buft: no"


def test_titles_break_where_the_table_is_narrow():
    model = model_of(12)

    model.break_titles(True)

    assert model.headerData(1, Qt.Orientation.Horizontal) == "supports\n_op"
    assert model.title(1) == "supports_op"
