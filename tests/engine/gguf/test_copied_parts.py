"""What was copied out of a mapped file leaves the process's memory; nothing else does."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from engine.gguf.copied_parts import CopiedParts
from engine.gguf.huge_pages import LARGE_PAGE_BYTES
from tests.bench.process_memory import mapped_bytes

IS_LINUX = sys.platform == "linux"
linux_only = pytest.mark.skipif(not IS_LINUX, reason="only Linux can be asked")

N_BYTES = 3 * LARGE_PAGE_BYTES + 5000


class MappedFile:
    """A file that this process has read through a mapping."""

    def __init__(self, path):
        self.path = path
        self.data = np.random.default_rng(0).integers(0, 256, N_BYTES, dtype=np.uint8)
        path.write_bytes(self.data.tobytes())
        with path.open("rb") as stream:
            self.mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        assert self.bytes() == self.data.tobytes()

    def bytes(self):
        """All bytes, read through the mapping."""
        return self.mapping[:]

    def resident(self):
        """Bytes of the mapping in this process's memory, to whole pages."""
        return mapped_bytes(str(self.path))


@pytest.fixture
def file(tmp_path):
    made = MappedFile(tmp_path / "model.gguf")
    yield made
    made.mapping.close()


ALL = -(-N_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE


@linux_only
@pytest.mark.parametrize(
    ("spans", "let_go"),
    [
        ([(0, LARGE_PAGE_BYTES)], LARGE_PAGE_BYTES),
        ([(0, 100), (100, LARGE_PAGE_BYTES + 1)], LARGE_PAGE_BYTES),
        ([(1, 2 * LARGE_PAGE_BYTES)], LARGE_PAGE_BYTES),
        ([(1, 2 * LARGE_PAGE_BYTES), (0, 1)], 2 * LARGE_PAGE_BYTES),
        ([(1, LARGE_PAGE_BYTES)], 0),
        ([(3 * LARGE_PAGE_BYTES, N_BYTES)], ALL - 3 * LARGE_PAGE_BYTES),
        ([(0, N_BYTES)], ALL),
        ([(7, 7)], 0),
    ],
)
def test_large_pages_of_which_all_was_copied_are_let_go(file, spans, let_go):
    assert file.resident() == ALL

    parts = CopiedParts(file.mapping)
    for start, stop in spans:
        parts.add(start, stop)

    assert file.resident() == ALL - let_go
    assert file.bytes() == file.data.tobytes()


def test_where_nobody_can_be_asked_the_bytes_stay_what_they_are(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    parts = CopiedParts(file.mapping)
    parts.add(0, N_BYTES)

    if IS_LINUX:
        assert file.resident() == ALL
    assert file.bytes() == file.data.tobytes()


class Refusing:
    """A mapping of a system that gives no pages back."""

    def __init__(self):
        self.asked = 0

    def __len__(self):
        return N_BYTES

    def madvise(self, _advice, _start, _length):
        self.asked += 1
        raise OSError(22, "Invalid argument")


@linux_only
def test_a_system_that_refuses_is_asked_once():
    mapping = Refusing()

    CopiedParts(mapping).add(0, N_BYTES)

    assert mapping.asked == 1
