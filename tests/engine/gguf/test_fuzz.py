"""Damaged files: nothing but GgufError comes out, and no memory that the file cannot justify."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.types import TensorType
from engine.errors import GgufError
from engine.gguf.faults import Source
from engine.gguf.reader import find_truncated, read_header
from engine.gguf.writer import header_bytes

SOUND = header_bytes(
    {
        "general.architecture": "llama",
        "general.alignment": np.uint32(32),
        "llama.block_count": 2,
        "tokenizer.ggml.tokens": [f"token {i}" for i in range(40)],
        "tokenizer.ggml.scores": np.zeros(40, np.float32),
        "tokenizer.ggml.add_bos_token": True,
    },
    [(f"blk.{i}.weight", TensorType.Q4_0, (64, 2)) for i in range(8)],
)

# A tensor entry of 24 bytes becomes a Python object of about 400 with its name and shape, and a
# message of an error is a few kilobytes whatever the file's size.
BYTES_PER_FILE_BYTE = 24
FIXED_BYTES = 64 * 1024

LARGE = [0xFF, 0x7F, 0x80, 0x00, 0x01, 0x09, 0x20]


def damaged(flips: list[tuple[int, int]], length: int) -> bytes:
    raw = bytearray(SOUND)
    for place, value in flips:
        raw[place] = value
    return bytes(raw[:length])


def read(raw: bytes) -> None:
    source = Source(Path("fuzz.gguf"), len(raw))
    try:
        header = read_header(raw, source)
    except GgufError:
        return
    find_truncated(header, len(raw))
    for value in header.metadata.values():
        str(value)
    for info in header.tensors:
        assert info.end < 2**63


def peak_of_reading(raw: bytes) -> int:
    tracemalloc.start()
    try:
        read(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


FLIPS = st.lists(
    st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255) | st.sampled_from(LARGE)),
    max_size=6,
)


def test_the_sound_file_is_read_within_its_memory():
    assert peak_of_reading(SOUND) < FIXED_BYTES + BYTES_PER_FILE_BYTE * len(SOUND)


@given(FLIPS, st.integers(0, len(SOUND)) | st.just(len(SOUND)))
@settings(max_examples=300, deadline=None)
def test_flipped_bytes_and_cuts_raise_nothing_else_and_take_no_memory(
    flips: list[tuple[int, int]], length: int
):
    raw = damaged(flips, length)

    assert peak_of_reading(raw) < FIXED_BYTES + BYTES_PER_FILE_BYTE * len(raw)


@given(st.integers(0, len(SOUND) - 8), st.integers(0, 2**64 - 1) | st.sampled_from([2**31, 2**63]))
@settings(max_examples=200, deadline=None)
def test_wrong_counts_and_lengths_raise_nothing_else_and_take_no_memory(place: int, number: int):
    raw = SOUND[:place] + struct.pack("<Q", number) + SOUND[place + 8 :]

    assert peak_of_reading(raw) < FIXED_BYTES + BYTES_PER_FILE_BYTE * len(raw)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_a_header_of_noise_raises_nothing_else(noise: bytes):
    read(noise)
    read(SOUND[:24] + noise)
