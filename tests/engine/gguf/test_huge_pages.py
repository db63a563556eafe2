"""A file is brought into memory whole, and its bytes stay what they are."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from engine.gguf import huge_pages
from engine.gguf.huge_pages import SEGMENT_BYTES, bring_in

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked")


@pytest.fixture
def mapped(tmp_path):
    """Map a file of so many bytes; gives the mapping, the path and the bytes."""
    opened = []

    def make(n_bytes):
        path = tmp_path / "model.gguf"
        data = np.random.default_rng(0).integers(0, 256, n_bytes, dtype=np.uint8)
        path.write_bytes(data.tobytes())
        with path.open("rb") as stream:
            opened.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        return opened[-1], path, data

    yield make
    for mapping in opened:
        mapping.close()


@linux_only
@pytest.mark.parametrize("n_bytes", [1, 5000, (3 << 20) + 7, SEGMENT_BYTES + 4097])
def test_every_byte_is_counted_and_none_changes(mapped, n_bytes):
    mapping, path, data = mapped(n_bytes)

    done = list(bring_in(mapping, path))

    once = [*range(SEGMENT_BYTES, n_bytes, SEGMENT_BYTES), n_bytes]
    assert done in (once, once * 2)
    np.testing.assert_array_equal(np.frombuffer(mapping[:], np.uint8), data)


@linux_only
def test_bytes_that_the_file_gives_meanwhile_stay_right(mapped):
    mapping, path, data = mapped(SEGMENT_BYTES + (5 << 20))
    view = np.frombuffer(memoryview(mapping).toreadonly(), np.uint8)

    for done in bring_in(mapping, path):
        np.testing.assert_array_equal(view[done - 4096 : done], data[done - 4096 : done])

    np.testing.assert_array_equal(view, data)
    del view


def test_a_file_that_is_gone_gives_nothing(mapped):
    mapping, path, _ = mapped(5000)
    path.unlink()

    assert list(bring_in(mapping, path)) == []


def test_another_system_gives_nothing(mapped, monkeypatch):
    mapping, path, _ = mapped(5000)
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")

    assert list(bring_in(mapping, path)) == []


@linux_only
def test_where_nobody_counts_large_pages_one_segment_is_tried_and_the_rest_left(
    mapped, monkeypatch, tmp_path
):
    mapping, path, _ = mapped(2 * SEGMENT_BYTES)
    monkeypatch.setattr(huge_pages, "_MAPPINGS", tmp_path / "absent")
    dropped = []
    drop = huge_pages._drop
    monkeypatch.setattr(huge_pages, "_drop", lambda *args: dropped.append(args[2]) or drop(*args))

    assert list(bring_in(mapping, path)) == [SEGMENT_BYTES, 2 * SEGMENT_BYTES]
    assert dropped == [SEGMENT_BYTES]


@linux_only
def test_a_file_in_small_pages_is_read_once_more_where_that_helps(mapped, monkeypatch, tmp_path):
    mapping, path, data = mapped(SEGMENT_BYTES + 4097)
    told = iter([0, 0, SEGMENT_BYTES])
    monkeypatch.setattr(huge_pages, "_bytes_in_large_pages", lambda mapping: next(told))
    monkeypatch.setattr(huge_pages, "SLOWEST_BYTES_PER_S", 0)

    assert list(bring_in(mapping, path)) == [SEGMENT_BYTES, data.size] * 2
    np.testing.assert_array_equal(np.frombuffer(mapping[:], np.uint8), data)


@linux_only
def test_a_file_in_large_pages_is_not_read_again_when_it_is_brought_in_again(mapped):
    mapping, path, data = mapped(SEGMENT_BYTES + 4097)
    list(bring_in(mapping, path))
    if 10 * huge_pages._bytes_in_large_pages(mapping) < 9 * data.size:
        return  # A system that keeps files in small pages.

    assert list(bring_in(mapping, path)) == [SEGMENT_BYTES, data.size]


@linux_only
def test_a_file_system_that_cannot_be_asked_leaves_the_file_as_it_is(mapped, monkeypatch, tmp_path):
    mapping, path, data = mapped(SEGMENT_BYTES + 4097)

    def refuse(_file):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(huge_pages, "_MAPPINGS", tmp_path / "absent")
    monkeypatch.setattr(huge_pages.os, "fdatasync", refuse)

    assert list(bring_in(mapping, path)) == [SEGMENT_BYTES, data.size]
    np.testing.assert_array_equal(np.frombuffer(mapping[:], np.uint8), data)
