from PySide6.QtCore import Qt

from app.models.cells import MARK_ROLE, Mark
from app.models.load_report_model import (
    Column,
    LoadReportModel,
    LoadReportRows,
    attempt_text,
    report_text,
)
from app.theme.text import NOTHING
from engine.core.load_report import LoadReport
from tests.app.models.device_facts import REPORT, SLOW_PATH
from tests.app.models.paper_run import words


def rows_of(report):
    model = LoadReportModel()
    rows = LoadReportRows(model)
    model.set_report(report)
    return model, rows


def column(rows, column):
    return [words(rows.index(row, column).data()) for row in range(rows.rowCount())]


def test_the_models_keep_qts_rules(qtmodeltester):
    model, rows = rows_of(REPORT)

    qtmodeltester.check(model)
    qtmodeltester.check(rows)


def test_paths_with_nothing_there_are_left_out_until_all_are_asked_for():
    _model, rows = rows_of(REPORT)
    assert column(rows, Column.OUTCOME) == ["registered", "not chosen", "not chosen", "refused"]

    rows.show_only_found(False)

    assert column(rows, Column.OUTCOME)[-1] == "not found"


def test_scores_are_sorted_as_numbers_and_a_third_click_is_the_order_of_trying():
    _model, rows = rows_of(REPORT)

    rows.sort(Column.SCORE, Qt.SortOrder.DescendingOrder)
    falling = column(rows, Column.SCORE)
    rows.sort(-1)

    assert falling == ["1 984", "64", "1", NOTHING]
    assert column(rows, Column.SCORE) == ["1", "64", "1 984", NOTHING]


def test_a_refused_path_stands_out_and_a_reason_of_two_lines_is_one():
    _model, rows = rows_of(REPORT)
    refused = rows.index(3, Column.OUTCOME)

    assert refused.data(MARK_ROLE) is Mark.ALERT
    assert rows.index(3, Column.REASON).data() == "libcudart.so.12: cannot open shared object"


def test_the_words_of_a_path_are_all_of_it():
    assert attempt_text(REPORT.attempts[0]) == (
        f"{SLOW_PATH}\nregistered\nTried because: it was asked for"
    )


def test_what_is_shown_is_copied_as_a_table():
    _model, rows = rows_of(REPORT)

    lines = words(report_text(rows.attempts())).split("\n")

    assert lines[0].startswith("outcome\tbackend\tvariant\tkind\tAPI\tscore\tfile\tfolder")
    cells = ["registered", "slow", NOTHING, "python", "2", "1", "splitscope_backend_slow.py"]
    assert lines[1].split("\t")[: len(cells)] == cells
    assert len(lines) == 5


def test_an_empty_report_is_an_empty_table():
    _model, rows = rows_of(LoadReport())

    assert rows.rowCount() == 0
    assert rows.attempts() == ()
