"""Theme, switch, segment, elided label, icons, hatch and badges."""

from pathlib import Path

import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAccessible

from app.theme.colours import DARK, LIGHT, DeviceLook
from app.theme.elided_label import ElidedLabel
from app.theme.icons import icon
from app.theme.paint import badge_html, badge_pixmap, hatch_brush
from app.theme.segment import Segment
from app.theme.switch import Switch
from app.theme.theme import Theme, ThemeChoice
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
