"""The colours keep the contrasts that the design measured, and devices keep their letters."""

from dataclasses import replace

import pytest

from app.theme.colours import DARK, LIGHT, contrast, device_style, lane_looks, sequential
from engine.core.devices import DeviceType
from engine.core.table import DeviceRow
from engine.trace.records import MEMBER_LANE

THEMES = [LIGHT, DARK]
TEXT, GRAPHICS = 4.5, 3.0


def row(name: str, kind: DeviceType) -> DeviceRow:
    return DeviceRow(name, name, "", kind, name, 0, 0, "")


@pytest.mark.parametrize("palette", THEMES, ids=lambda p: p.name)
def test_text_is_readable_on_panels(palette):
    texts = [palette.ink, palette.ink2, palette.alert, palette.copy_text]
    texts += [palette.less.text, palette.more.text, *(d.text for d in palette.devices)]

    assert [t.name() for t in texts if contrast(t, palette.bg1) < TEXT] == []


@pytest.mark.parametrize("palette", THEMES, ids=lambda p: p.name)
def test_marks_and_borders_stand_out_from_panels(palette):
    marks = [palette.ctl, palette.copy_mark, palette.less.mark, palette.more.mark]
    marks += [d.edge for d in palette.devices]

    assert [m.name() for m in marks if contrast(m, palette.bg1) < GRAPHICS] == []


@pytest.mark.parametrize("palette", THEMES, ids=lambda p: p.name)
def test_letters_are_readable_on_badges(palette):
    assert all(contrast(d.on_base, d.base) >= TEXT for d in palette.devices)


def test_contrast_is_what_the_design_measured():
    assert contrast(LIGHT.ink, LIGHT.bg1) == pytest.approx(17.63, abs=0.01)
    assert contrast(DARK.devices[0].edge, DARK.bg1) == pytest.approx(5.51, abs=0.01)


def test_the_cpu_is_c_and_gpus_go_on_from_g():
    rows = [row(f"GPU{i}", DeviceType.GPU) for i in range(4)] + [row("CPU", DeviceType.CPU)]

    looks = device_style(LIGHT, rows)

    assert [look.letter for look in looks] == ["G", "H", "J", "K", "C"]
    assert [look.name for look in looks] == ["GPU0", "GPU1", "GPU2", "GPU3", "CPU"]


def test_a_device_keeps_its_hatch_in_both_themes():
    rows = [row("GPU0", DeviceType.GPU), row("CPU", DeviceType.CPU)]

    light, dark = device_style(LIGHT, rows), device_style(DARK, rows)

    assert [look.colours.hatch for look in light] == [look.colours.hatch for look in dark]
    assert light[0].colours.hatch != light[1].colours.hatch


def test_the_sequential_scale_runs_from_dark_to_bright():
    assert sequential(0).name() == "#00204c"
    assert sequential(1).name() == "#ffe945"
    assert sequential(0.2).lightness() < sequential(0.8).lightness()


def test_devices_that_are_joined_have_looks_of_their_own_by_lane():
    members = tuple(row(f"GPU{i}", DeviceType.GPU) for i in range(2))
    rows = [replace(row("Meta()", DeviceType.META), members=members), row("CPU", DeviceType.CPU)]

    looks = lane_looks(LIGHT, rows)

    letters = {lane: (look.name, look.letter) for lane, look in looks.items()}
    assert letters == {
        0: ("Meta()", "J"),
        1: ("CPU", "C"),
        MEMBER_LANE: ("GPU0", "G"),
        MEMBER_LANE + 1: ("GPU1", "H"),
    }
    assert len({look.colours.base.name() for look in looks.values()}) == 4


def test_a_device_keeps_its_look_when_it_is_joined_with_others():
    members = tuple(row(f"GPU{i}", DeviceType.GPU) for i in range(2))
    blas, cpu = row("BLAS", DeviceType.ACCEL), row("CPU", DeviceType.CPU)
    meta = replace(row("Meta()", DeviceType.META), members=members)

    alone = {look.name: look for look in device_style(LIGHT, [*members, blas, cpu])}
    joined = {look.name: look for look in lane_looks(LIGHT, [meta, blas, cpu]).values()}

    assert {name: joined[name] for name in alone} == alone
    assert joined["Meta()"].letter not in {look.letter for look in alone.values()}
    assert device_style(LIGHT, [meta, blas, cpu])[0] == joined["Meta()"]
