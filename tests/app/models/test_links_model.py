import pytest
from PySide6.QtCore import Qt

from app.models.cells import LOOK_ROLE
from app.models.links_model import LinkColumn, LinksModel
from app.theme.colours import LIGHT, lane_looks
from engine.trace.links import Link
from tests.app.models import paper_pipeline
from tests.app.models.paper_run import words

LINKS = (
    Link(0, 1, 4, 3 * 1024**2, 1_000_000, 200_000.0, 300_000.0),
    Link(2, 0, 1, 512, 0, 0.0, 0.0),
    Link(255, 0, 1, 512, 0, 0.0, 0.0),
)


@pytest.fixture
def model(qapp):
    model = LinksModel()
    model.set_links(LINKS, lane_looks(LIGHT, paper_pipeline.plans().prompt.devices))
    return model


def row(model, i):
    return [words(model.index(i, column).data()) for column in LinkColumn]


def test_the_model_keeps_qts_rules(qtmodeltester, model):
    qtmodeltester.check(model)


def test_a_row_has_both_devices_bytes_and_rate(model):
    assert row(model, 0) == ["OpenCL0", "OpenCL1", "3.00", "3.1"]
    assert model.index(0, LinkColumn.TARGET).data(LOOK_ROLE).letter == "H"
    assert model.index(0, LinkColumn.MIB).data(LOOK_ROLE) is None


def test_a_link_of_a_lane_that_is_no_device_is_left_out(model):
    assert model.rowCount() == 2


def test_the_tooltip_says_how_long_a_piece_takes(model):
    tip = words(model.index(0, 0).data(Qt.ItemDataRole.ToolTipRole))

    assert tip == "OpenCL0 to OpenCL1: 4 pieces, p50 200 µs, p95 300 µs each"


def test_heads_say_what_their_columns_count(model):
    heads = [model.headerData(c, Qt.Orientation.Horizontal) for c in LinkColumn]
    tip = model.headerData(LinkColumn.RATE, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)

    assert heads == ["from", "copies to", "MiB", "GB/s"]
    assert tip == "Bytes by the time in which at least one copy is under way"
