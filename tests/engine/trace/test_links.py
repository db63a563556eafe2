import pytest

from engine.trace.links import links
from tests.engine.trace.drawn import (
    CPU,
    EMBD,
    GPU0,
    GPU1,
    L_OUT,
    POS,
    copy,
    exchange,
    spans_of,
    split,
)


def test_a_link_has_the_bytes_and_the_time_of_its_copies():
    """Two copies overlap and one comes later: 30 ns in all."""
    spans = spans_of(
        copy(EMBD, 0, 20, n_bytes=100),
        copy(POS, 10, 25, n_bytes=20),
        copy(POS, 40, 45, step=1, n_bytes=30),
        copy(L_OUT, 50, 60, n_bytes=5),
        split(1, 0, 99),
    )

    between_gpus, from_cpu = links(spans)

    assert (from_cpu.source_lane, from_cpu.target_lane) == (CPU, GPU0)
    assert (from_cpu.n_transfers, from_cpu.n_bytes, from_cpu.busy_ns) == (3, 150, 30)
    assert from_cpu.gb_per_s == 5.0
    assert (from_cpu.p50_ns, from_cpu.p95_ns) == (15.0, pytest.approx(19.5))
    assert (between_gpus.source_lane, between_gpus.target_lane) == (GPU0, GPU1)


def test_exchanges_of_shares_use_links_too_and_each_direction_is_one():
    spans = spans_of(
        exchange(GPU0, GPU1, 1, 0, 4, n_bytes=8),
        exchange(GPU1, GPU0, 1, 4, 8, n_bytes=16),
    )

    found = [(link.source_lane, link.target_lane, link.n_bytes) for link in links(spans)]

    assert found == [(GPU0, GPU1, 8), (GPU1, GPU0, 16)]


def test_a_link_without_measured_time_has_no_speed_and_no_spans_have_no_links():
    (link,) = links(spans_of(copy(POS, 5, 5, n_bytes=10)))

    assert link.gb_per_s == 0.0
    assert links(spans_of()) == ()
