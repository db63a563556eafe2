import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.views.timeline import scale
from app.views.timeline.scale import TimeView
from tests.app.models import paper_run

RUN = TimeView(0.0, 1e9)
PARTS = st.floats(0, 1)


def test_zooming_keeps_the_moment_under_the_pointer():
    view = scale.zoomed(TimeView(2e8, 6e8), 2, 3e8, RUN)

    assert view == TimeView(2.5e8, 4.5e8)
    assert view.x_of(3e8, 1000) == TimeView(2e8, 6e8).x_of(3e8, 1000)


def test_zooming_out_ends_at_the_whole_run():
    assert scale.zoomed(TimeView(4e8, 6e8), 0.01, 5e8, RUN) == RUN


def test_zooming_in_ends_at_a_microsecond():
    view = scale.zoomed(TimeView(0, 2_000), 1e9, 1_000, RUN)

    assert view.span == pytest.approx(scale.MIN_SPAN_NS)


@given(PARTS, PARTS, st.floats(0.01, 100), st.floats(-2e9, 2e9))
def test_no_zoom_or_pan_leaves_the_run(a, b, factor, by_ns):
    low, high = sorted((a, b))
    view = TimeView(low * 1e9, max(high * 1e9, low * 1e9 + 2_000))
    view = scale.panned(scale.zoomed(view, factor, view.t0, RUN), by_ns, RUN)

    assert view.t1 > 0
    assert view.t0 < 1e9
    assert view.span <= RUN.span * 1.000001


def test_a_framed_slice_stands_in_the_middle_of_its_neighbours():
    view = scale.framed(4e8, 4.2e8, RUN)

    assert view.span == pytest.approx(1e8)
    assert (view.t0 + view.t1) / 2 == pytest.approx(4.1e8)


def test_ticks_are_round_and_apart():
    found = scale.ticks(TimeView(1.13e8, 1.31e8), 1200, 0)

    assert [paper_run.words(tick.label) for tick in found[:2]] == ["114 ms", "116 ms"]


def test_ticks_count_from_the_start_of_the_run():
    found = scale.ticks(TimeView(5e9, 5e9 + 1e6), 1000, int(5e9))

    assert found[0].label.startswith("0.0")


def test_the_title_says_how_much_is_shown():
    shown = scale.shown_text(TimeView(1.13e8, 1.306e8), TimeView(0, 1.1674e9))

    assert paper_run.words(shown) == "17.6 ms of 1 167.4 ms shown"


def test_a_long_run_is_followed_at_its_end():
    assert scale.following(0, 5e9) == TimeView(3e9, 5e9)
    assert scale.following(0, 1e9) == TimeView(0, 1e9)
