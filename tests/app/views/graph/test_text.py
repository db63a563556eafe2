import pytest
from PySide6.QtGui import QFontMetricsF

from app.theme.fonts import TINY_PX, general_font
from app.views.graph.paint_rows import fitting_text


@pytest.fixture
def metrics(qapp):
    return QFontMetricsF(general_font(TINY_PX))


def test_a_name_that_fits_stays_whole(metrics):
    room = metrics.horizontalAdvance("softmax")

    assert fitting_text("softmax", "s", metrics, room) == "softmax"


def test_a_long_name_is_elided_in_the_middle(metrics):
    room = metrics.horizontalAdvance("result_output") - 10

    text = fitting_text("result_output", "l", metrics, room)

    assert text.startswith("res")
    assert text.endswith("ut")
    assert metrics.horizontalAdvance(text) <= room


def test_one_letter_is_left_before_an_elided_name_says_nothing(metrics):
    assert fitting_text("softmax", "s", metrics, metrics.horizontalAdvance("sof")) == "s"


def test_nothing_is_left_where_no_letter_fits(metrics):
    assert fitting_text("softmax", "s", metrics, 2) == ""
