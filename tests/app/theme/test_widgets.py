"""Theme, switch, segment, elided label, icons, hatch and badges."""

from pathlib import Path

import pytest
from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme.colours import DARK, LIGHT, DeviceLook
from app.theme.elided_label import ElidedLabel
from app.theme.icons import icon
from app.theme.paint import badge_html, badge_pixmap, hatch_brush
from app.theme.segment import Segment
from app.theme.switch import Switch
from app.theme.theme import Theme, ThemeChoice
from app.theme.whole_lines import WholeLines
from app.theme.wrapped_label import WrappedLabel
from engine.paths import resources_dir

ICONS = sorted((resources_dir() / "icons").glob("*.svg"))
LOOKS = [DeviceLook(letter, "x", d) for letter, d in zip("CGHJ", LIGHT.devices, strict=True)]


@pytest.fixture
def theme(qapp):
    theme = Theme(ThemeChoice.LIGHT)
    yield theme
    theme.deleteLater()


def test_choosing_a_theme_tells_who_follows_it_once(theme, qtbot):
    with qtbot.waitSignal(theme.changed) as heard:
        theme.choose(ThemeChoice.DARK)

    assert heard.args == [DARK]
    assert theme.name == "dark"


def test_choosing_the_same_theme_says_nothing(theme, qtbot):
    with qtbot.assertNotEmitted(theme.changed):
        theme.choose(ThemeChoice.LIGHT)


def test_the_style_sheet_has_the_palettes_colours_and_no_open_name(theme):
    sheet = theme.stylesheet()

    assert LIGHT.alert.name() in sheet
    assert "$" not in sheet


def test_a_switch_is_a_check_box_for_keys_and_screen_readers(theme, qtbot):
    switch = Switch("on", theme)
    qtbot.addWidget(switch)
    switch.show()

    qtbot.keyClick(switch, Qt.Key.Key_Space)

    assert switch.isChecked()
    assert QAccessible.queryAccessibleInterface(switch).role() == QAccessible.Role.CheckBox


def test_a_switch_is_drawn_differently_when_it_is_on(theme, qtbot):
    switch = Switch("", theme)
    qtbot.addWidget(switch)
    off = switch.grab().toImage()

    switch.setChecked(True)

    assert switch.grab().toImage() != off


def test_a_segment_tells_what_a_person_chose_and_not_what_the_program_did(qtbot):
    segment = Segment([("a", "first"), ("b", "second")], "Choice")
    qtbot.addWidget(segment)
    chosen = []
    segment.chosen.connect(chosen.append)

    segment.choose("b")
    assert (segment.value, chosen) == ("b", [])

    segment.button("a").click()
    assert (segment.value, chosen) == ("a", ["a"])


def test_an_elided_label_says_everything_in_its_tooltip_only_when_cut(qtbot):
    label = ElidedLabel("a rather long text that will not fit")
    qtbot.addWidget(label)
    label.show()

    label.resize(600, 20)
    assert label.toolTip() == ""

    label.resize(60, 20)
    assert label.toolTip() == label.text()


@pytest.mark.parametrize("path", ICONS, ids=lambda p: p.stem)
def test_every_icon_is_drawn_in_the_colour_asked_for(path: Path, qapp):
    image = icon(path.stem, LIGHT.alert, LIGHT.ink3).pixmap(QSize(16, 16), 3.0).toImage()

    colours = {image.pixelColor(x, y).name() for x in range(48) for y in range(48)
               if image.pixelColor(x, y).alpha() == 255}  # fmt: skip
    assert colours == {LIGHT.alert.name()}


def test_only_a_plain_device_has_no_hatch(qapp):
    styles = [hatch_brush(look, LIGHT).style() for look in LOOKS]

    assert [style == Qt.BrushStyle.NoBrush for style in styles] == [False, True, False, False]


def test_a_badge_carries_the_devices_colour_and_its_letter_in_rich_text(qapp):
    image = badge_pixmap(LOOKS[1]).toImage()

    assert image.pixelColor(2, 8).name() == LOOKS[1].colours.base.name()
    assert 'alt="G"' in badge_html(LOOKS[1])


@pytest.fixture
def column(qtbot):
    widget = QWidget()
    qtbot.addWidget(widget)
    QVBoxLayout(widget)
    widget.resize(220, 300)
    widget.show()
    return widget


def lines_px(label):
    room = QRect(0, 0, label.width(), 10_000)
    return label.fontMetrics().boundingRect(room, Qt.TextFlag.TextWordWrap, label.text()).height()


@pytest.mark.parametrize("width", [220, 600, 160])
def test_a_wrapped_label_is_as_high_as_its_lines(column, qtbot, width):
    label = WrappedLabel(column)
    column.layout().addWidget(label)
    label.setText("The text is too long, and this is one of several lines that say so. " * 3)

    column.resize(width, 300)

    qtbot.waitUntil(lambda: label.width() < width and label.height() == lines_px(label))
    assert label.height() >= 2 * label.fontMetrics().height()


def test_an_empty_wrapped_label_takes_no_room(column):
    label = WrappedLabel(column)
    column.layout().addWidget(label)

    label.setText("words")
    shown = label.isVisible()
    label.setText("")

    assert shown
    assert label.isHidden()


@pytest.mark.parametrize("height", range(90, 120, 3))
def test_a_field_of_whole_lines_shows_no_half_of_one(column, qtbot, height):
    field = WholeLines("\n".join(map(str, range(40))), column)
    column.layout().addWidget(field)

    column.resize(200, height)
    field.show()
    column.layout().activate()

    lines = (field.viewport().height() - field.document().documentMargin()) / field.line_px
    assert lines - int(lines) < 2 / field.line_px


def test_a_field_that_all_lines_fit_into_has_no_scroll_bar(column):
    field = WholeLines("one\ntwo\nthree", column)
    column.layout().addWidget(field)

    field.setFixedHeight(field.height_of(3))
    field.show()
    column.layout().activate()

    assert field.verticalScrollBar().maximum() == 0


def test_a_wrapped_label_comes_to_rest(column, qtbot):
    label = WrappedLabel(column)
    column.layout().addWidget(label)
    label.setText("The text is too long, and this is one of several lines that say so. " * 3)
    qtbot.wait(50)
    fits = []
    label._fit = lambda: fits.append(label.height())

    qtbot.wait(50)

    assert fits == []
