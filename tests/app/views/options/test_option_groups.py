from PySide6.QtGui import QFontMetricsF

from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.views.options.groups import GROUPS
from app.views.options.row import FIELD_PX, PADDING_PX, RESET_PX
from engine.core.options import OPTION_SPECS, SPEC_BY_FIELD

NARROWEST_PX = 320 - 10  # The dock's least width without its scroll bar.
GAPS_PX = 12


def test_every_option_of_the_table_is_there_once_and_in_the_tables_order():
    shown = [field for group in GROUPS for field in group.fields]

    assert shown == [spec.field for spec in OPTION_SPECS]


def test_only_the_first_section_is_open_at_first():
    assert [group.id for group in GROUPS if group.is_open] == ["layers"]


def test_labels_and_flags_fit_beside_their_control_in_the_narrowest_dock(qapp):
    room_px = NARROWEST_PX - PADDING_PX - FIELD_PX - RESET_PX - GAPS_PX
    plain, mono = QFontMetricsF(general_font(SMALL_PX)), QFontMetricsF(fixed_font(TINY_PX))

    for group in GROUPS:
        for field, label in group.rows:
            assert plain.horizontalAdvance(label) <= room_px, label
            assert mono.horizontalAdvance(SPEC_BY_FIELD[field].flags[0]) <= room_px, field
