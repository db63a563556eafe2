import numpy as np
import pytest

from app.theme.colours import DARK, LIGHT
from app.theme.text import MINUS, bytes_text
from app.views.graph.block import block_of
from app.views.graph.columns import shape_of
from app.views.graph.gutter import gutter_of
from app.views.graph.layout import Viewport, layout_of
from app.views.graph.paint_rows import note_place
from app.views.graph.placed import changed, placed
from app.views.graph.scene import make_scene
from app.views.graph.words import EN_DASH
from tests.app.models.paper_run import plans, small_plans

pytestmark = pytest.mark.usefixtures("qapp")


def scene(plan, *, was=None, row_ms=None, open_row=-1, size=(916, 724), palette=LIGHT):
    shape = shape_of(plan, 30)
    now = placed(plan, shape)
    block = None
    if open_row > 0:
        block = block_of(plan, shape.node_id[shape.cells_of_row(open_row)].tolist())
    layout = layout_of(shape, Viewport(*size, open_row=open_row), block)
    difference = None if was is None else changed(was, now, shape)
    return make_scene(now, shape, layout, palette, changed=difference, row_ms=row_ms)


def said(entry):
    return [words.text for words in (*entry.lines, *entry.figures)]


def test_alike_layers_say_once_what_they_share():
    gutter = gutter_of(scene(plans().prompt, open_row=1))

    alike, last = gutter.entries
    assert said(alike) == [
        f"layers 1{EN_DASH}28",
        "are alike",
        "11 splits each",
        f"3.24{EN_DASH}{bytes_text(3_406_336)}",
        "copied each",
    ]
    assert said(last) == ["no copies"]


def test_without_cuts_the_layers_have_no_copies():
    gutter = gutter_of(scene(small_plans().prompt))

    assert [said(entry) for entry in gutter.entries][1][:2] == [f"layers 1{EN_DASH}28", "are alike"]
    assert said(gutter.entries[1])[-1] == "no copies"


def test_a_difference_says_what_moved_in_every_layer():
    gutter = gutter_of(scene(plans(op_offload=False).prompt, was=plans().prompt))

    assert gutter.heads == ("moved", "splits", "MiB")
    assert said(gutter.entries[0]) == ["25", f"{MINUS}12", f"{MINUS}4.87"]
    assert said(gutter.entries[28]) == ["24", f"{MINUS}10", f"{MINUS}0.49"]
    assert said(gutter.entries[29]) == ["0", "0", "0"]


def test_low_rows_with_the_same_change_are_said_once():
    gutter = gutter_of(scene(plans(op_offload=False).prompt, was=plans().prompt, size=(668, 300)))

    assert [(entry.start, entry.stop) for entry in gutter.entries] == [
        (1, 2), (2, 29), (29, 30), (30, 31),
    ]  # fmt: skip


def test_a_run_says_ms_and_the_slowest_row_has_the_longest_bar():
    row_ms = np.full(32, 13.6)
    row_ms[30], row_ms[31] = 18.61, 0.0

    gutter = gutter_of(scene(plans().prompt, row_ms=row_ms))

    assert gutter.heads == ("ms",)
    assert len(gutter.entries) == 31
    assert [said(e) for e in gutter.entries if e.share == 1] == [["18.61"]]


def test_a_difference_shows_no_device_colours():
    picture = scene(plans(op_offload=False).prompt, was=plans().prompt, palette=DARK)

    devices = {look.fill.name() for look in DARK.devices} | {
        look.edge.name() for look in DARK.devices
    }
    used = {style.fill.name() for style in picture.styles} | {s.edge.name() for s in picture.styles}
    assert not used & devices
    assert [style.letter for style in picture.styles] == ["G", "C", "G→C"]


def test_the_input_says_why_it_stays():
    assert scene(plans().prompt).note == "token_embd stays on the CPU: GET_ROWS is never offloaded"


def test_a_change_under_a_mib_is_said_in_kib():
    gutter = gutter_of(scene(plans(8).token, was=plans().token))

    assert gutter.heads == ("moved", "splits", "KiB")
    assert any(words.text not in ("0", "") for e in gutter.entries for words in e.figures[2:])


@pytest.mark.parametrize("size", [(480, 300), (916, 724)])
def test_the_note_of_the_first_row_ends_where_its_measured_time_begins(size):
    plan, took = plans().prompt, np.full(32, 3.0)

    measured = scene(plan, size=size, row_ms=took)
    planned = scene(plan, size=size)
    changed_ = scene(plan, size=size, row_ms=took, was=plans(op_offload=False).prompt)

    assert note_place(measured, 200.0).right() <= measured.layout.matrix_right
    for wide in (planned, changed_):
        assert note_place(wide, 200.0).right() == size[0] - 4
