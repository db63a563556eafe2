"""Opening files: sound ones, shortened ones, and every fault by the words it is told in."""

import os
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core.types import TensorType
from engine.errors import GgufError
from engine.gguf.keys import ValueType
from engine.gguf.reader import GgufFile, TruncatedTensor, open_gguf
from engine.gguf.writer import NewTensor, header_bytes, write_gguf
from tests.oracle import golden

ARCH = {"general.architecture": "llama"}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def head(n_tensors: int, n_keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)


def entry(key: str | bytes, value_type: int, raw: bytes) -> bytes:
    return string(key) + struct.pack("<I", value_type) + raw


def tensor(
    name: str | bytes,
    ne: tuple[int, ...] = (4,),
    type_id: int = 0,
    offset: int = 0,
    n_dims: int = -1,
) -> bytes:
    shape = struct.pack(f"<I{len(ne)}Q", len(ne) if n_dims < 0 else n_dims, *ne)
    return string(name) + shape + struct.pack("<IQ", type_id, offset)


PADDING = bytes(4096)
TWO_STRINGS = struct.pack("<IQ", ValueType.STRING, 2)
TINY: list[NewTensor] = [
    ("a.weight", TensorType.F32, (3, 2), np.arange(6, dtype=np.float32)),
    ("b.weight", TensorType.Q8_0, (32, 1, 2), bytes(range(68))),
]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, ARCH, TINY)
    return path


def open_raw(tmp_path: Path, raw: bytes) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    return open_gguf(path)


def cut_of(file: GgufFile) -> TruncatedTensor:
    assert file.truncated is not None
    return file.truncated


def values_of(file: GgufFile) -> dict[str, Any]:
    return dict(file.metadata)


def test_tensors_are_listed_in_file_order_with_shapes_padded_to_four(tiny: Path):
    with open_gguf(tiny) as file:
        a, b = file.tensors

        assert (a.name, a.type, a.ne, a.offset, a.n_bytes, a.i) == (
            "a.weight", TensorType.F32, (3, 2, 1, 1), 0, 24, 0
        )  # fmt: skip
        assert (b.ne, b.offset, b.n_bytes, b.end, b.i) == ((32, 1, 2, 1), 32, 68, 100, 1)
        assert (file.version, file.alignment, file.truncated) == (3, 32, None)
        assert file.data_offset % 32 == 0
        assert file.size == tiny.stat().st_size


def test_tensor_bytes_are_a_read_only_view_that_outlives_the_file(tiny: Path):
    with open_gguf(tiny) as file:
        raw = file.tensor_bytes(file.tensor("a.weight"))
        span = file.mapped_bytes(file.data_offset, file.size)

    assert raw.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert span[32:100].tobytes() == bytes(range(68))
    assert not raw.flags.writeable
    assert not raw.flags.owndata


def test_closing_twice_is_harmless_and_reading_after_it_is_a_developer_error(tiny: Path):
    file = open_gguf(tiny)
    file.close()
    file.close()

    with pytest.raises(AssertionError, match="is closed"):
        file.tensor_bytes(file.tensors[0])


def test_a_missing_tensor_is_named(tiny: Path):
    with open_gguf(tiny) as file:
        assert "a.weight" in file
        assert "c.weight" not in file
        with pytest.raises(GgufError, match=r"no tensor 'c\.weight'"):
            file.tensor("c.weight")


def test_every_value_type_is_read_as_it_was_written(tmp_path: Path):
    values = {
        "u8": np.uint8(200), "i8": np.int8(-5), "u16": np.uint16(60000), "i16": np.int16(-30000),
        "u32": np.uint32(4_000_000_000), "i32": np.int32(-7), "f32": np.float32(0.5), "t": True,
        "f": False, "s": "héllo", "u64": np.uint64(2**63), "i64": np.int64(-(2**40)),
        "f64": np.float64(1e300),
    }  # fmt: skip
    with open_raw(tmp_path, header_bytes(values, [])) as file:
        assert dict(file.metadata) == values
        assert [type(file.metadata[k]) for k in ("u8", "f32", "t", "s")] == [int, float, bool, str]
        assert [t.name.lower()[0] for t in file.value_types.values()] == [
            *"uiuiuif", "b", "b", *"suif"
        ]  # fmt: skip


def test_arrays_are_read_as_read_only_numpy_arrays_and_string_arrays(tmp_path: Path):
    values = {
        "ints": np.array([1, -2, 3], np.int32), "truths": np.array([True, False]),
        "floats": np.array([0.5, 2.0]), "none": np.array([], np.uint8), "words": ["a", "", "ö"],
    }  # fmt: skip
    with open_raw(tmp_path, header_bytes(values, [])) as file:
        read = values_of(file)

    assert read["ints"].tolist() == [1, -2, 3]
    assert read["ints"].dtype == np.int32
    assert read["truths"].tolist() == [True, False]
    assert read["floats"].dtype == np.float64
    assert read["none"].tolist() == []
    assert list(read["words"]) == ["a", "", "ö"]
    assert not any(read[key].flags.writeable for key in ("ints", "truths", "floats"))


def test_any_byte_but_zero_is_true(tmp_path: Path):
    truths = entry("many", ValueType.ARRAY, struct.pack("<IQ", ValueType.BOOL, 3) + b"\0\1\7")
    raw = head(0, 2) + truths + entry("one", ValueType.BOOL, b"\x02")

    with open_raw(tmp_path, raw) as file:
        assert values_of(file)["many"].tolist() == [False, True, True]
        assert file.metadata["one"] is True


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path):
    raw = head(1, 1) + entry(b"k\xff", ValueType.STRING, string(b"v\xfe")) + tensor(b"t\xc3")

    with open_raw(tmp_path, raw) as file:
        assert dict(file.metadata) == {"k\ufffd": "v\ufffd"}
        assert file.tensors[0].name == "t\ufffd"


def test_a_tensor_without_dimensions_has_one_element_and_one_without_elements_is_never_missing(
    tmp_path: Path,
):
    raw = head(2, 0) + tensor("scalar", ()) + tensor("empty", (0, 5), offset=32)

    with open_raw(tmp_path, raw + bytes(-len(raw) % 32 + 4)) as file:
        assert [info.n_bytes for info in file.tensors] == [4, 0]
        assert file.truncated is None


def test_a_file_that_ends_after_its_header_opens_and_names_the_first_tensor(tmp_path: Path):
    specs = [(name, tensor_type, ne) for name, tensor_type, ne, _ in TINY]
    with open_raw(tmp_path, header_bytes(ARCH, specs)) as file:
        cut = cut_of(file)
        start = file.data_offset

        assert (cut.name, cut.i, cut.there_bytes) == ("a.weight", 0, 0)
        assert (cut.start, cut.stop) == (start, start + 24)
        assert cut.expected_size == start + 100
        with pytest.raises(GgufError, match=r"ends 24 bytes early \(tensor 'a.weight' needs 24"):
            file.tensor_bytes(file.tensors[0])


def test_a_file_may_end_before_the_padding_of_its_header(tmp_path: Path):
    raw = head(1, 0) + tensor("t")

    with open_raw(tmp_path, raw) as file:
        assert cut_of(file).start == file.data_offset > len(raw)
        assert cut_of(file).there_bytes == 0


def test_a_file_that_ends_inside_a_tensor_says_how_much_is_there(tiny: Path):
    whole = tiny.read_bytes()
    with open_gguf(tiny) as file:
        stop = file.data_offset + file.tensors[1].end
    tiny.write_bytes(whole[: stop - 10])

    with open_gguf(tiny) as file:
        cut = cut_of(file)
        assert (cut.name, cut.i, cut.there_bytes) == ("b.weight", 1, 58)
        assert cut.expected_size == stop
        assert file.tensor_bytes(file.tensors[0]).size == 24


def test_the_padding_of_the_last_tensor_may_be_missing(tiny: Path):
    with open_gguf(tiny) as file:
        stop = file.data_offset + file.tensors[1].end
    tiny.write_bytes(tiny.read_bytes()[:stop])

    with open_gguf(tiny) as file:
        assert file.truncated is None


def test_the_alignment_of_the_file_is_used(tmp_path: Path):
    path = tmp_path / "aligned.gguf"
    write_gguf(path, ARCH, TINY, alignment=4096)

    with open_gguf(path) as file:
        assert (file.alignment, file.data_offset, file.tensors[1].offset) == (4096, 4096, 4096)


FAULTS = {
    "not GGUF": (b"PK\3\4" + PADDING, r"not a GGUF file \(it starts with 'PK\\x03\\x04'"),
    "two bytes": (b"GG", "not a GGUF file"),
    "ends in the version": (b"GGUF\3\0", "4 bytes are needed and 2 are there"),
    "version 0": (head(0, 0, 0), "version 0 of the format"),
    "version 2": (head(0, 0, 2), "version 2 of the format; Splitscope reads version 3"),
    "version 4": (head(0, 0, 4), "version 4.*later version of Splitscope"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "ends in the counts": (head(0, 0)[:12], "8 bytes are needed and 4 are there"),
    "too many tensors": (head(2**40, 0), r"announces 1,099,511,627,776 tensors; at most"),
    "tensors beyond the file": (head(10, 0) + bytes(50), "10 tensors, and .* hold at most 2"),
    "too many keys": (head(0, 2**63), "metadata entries; at most 65,536"),
    "keys beyond the file": (head(0, 9) + bytes(20), "9 metadata entries, and .* at most 1"),
    "empty key": (head(0, 1) + entry("", 0, b"\0") + PADDING, "empty key"),
    "long key": (head(0, 1) + entry("k" * 70_000, 0, b"\0"), "70,000 bytes in the key; at most"),
    "key beyond the file": (
        head(0, 1) + struct.pack("<Q", 60_000) + PADDING,
        "60,000 bytes in the key, and .* at most 4,096",
    ),
    "duplicate key": (head(0, 2) + 2 * entry("k", 0, b"\0"), "the key 'k' occurs twice"),
    "value type": (head(0, 1) + entry("k", 13, b"\0"), "value type 13 is unknown.*key 'k'"),
    "nested array": (
        head(0, 1) + entry("k", ValueType.ARRAY, struct.pack("<IQ", ValueType.ARRAY, 1)),
        "array of arrays",
    ),
    "item type": (
        head(0, 1) + entry("k", ValueType.ARRAY, struct.pack("<IQ", 99, 1)),
        "value type 99 is unknown",
    ),
    "value cut": (head(0, 1) + entry("k" * 8, ValueType.UINT64, b"\0\0"), "8 bytes are needed and"),
    "numbers beyond the file": (
        head(0, 1) + entry("k", ValueType.ARRAY, struct.pack("<IQ", ValueType.INT64, 3)) + bytes(9),
        "3 numbers, and .* hold at most 1",
    ),
    "strings beyond the file": (
        head(0, 1) + entry("k", ValueType.ARRAY, TWO_STRINGS) + bytes(9),
        "2 strings, and .* hold at most 1",
    ),
    "first string too long": (
        head(0, 1) + entry("k", ValueType.ARRAY, TWO_STRINGS + struct.pack("<QQ", 2**63, 0)),
        "string 1 of 2 reaches beyond the end",
    ),
    "last string too long": (
        head(0, 1) + entry("k", ValueType.ARRAY, TWO_STRINGS + struct.pack("<QQ", 0, 1)),
        "string 2 of 2 reaches beyond the end",
    ),
    "long string": (
        head(0, 1) + entry("k", ValueType.STRING, struct.pack("<Q", 2**30)),
        "1,073,741,824 bytes in a string; at most 67,108,864",
    ),
    "alignment type": (
        head(0, 1) + entry("general.alignment", ValueType.UINT64, struct.pack("<Q", 32)),
        "alignment is of type UINT64; it must be UINT32",
    ),
    "alignment 0": (
        head(0, 1) + entry("general.alignment", ValueType.UINT32, struct.pack("<I", 0)),
        "alignment is 0; it must be a power of two from 8 to 2,097,152",
    ),
    "alignment 24": (
        head(0, 1) + entry("general.alignment", ValueType.UINT32, struct.pack("<I", 24)),
        "alignment is 24",
    ),
    "alignment too large": (
        head(0, 1) + entry("general.alignment", ValueType.UINT32, struct.pack("<I", 2**30)),
        "alignment is 1,073,741,824",
    ),
    "long tensor name": (head(1, 0) + tensor("n" * 64), "64 bytes in a tensor's name; at most 63"),
    "duplicate tensor": (
        head(2, 0) + tensor("t") + tensor("t", offset=32),
        "tensor name 't' occurs twice",
    ),
    "five dimensions": (head(1, 0) + tensor("t", (1,) * 5), "5 dimensions; at most 4"),
    "shape cut": (head(1, 0) + tensor("t", (), n_dims=4), "8 bytes are needed and"),
    "negative dimension": (head(1, 0) + tensor("t", (2**64 - 1, 0)), "more elements than int64"),
    "elements overflow": (head(1, 0) + tensor("t", (2**32, 2**31)), "more elements than int64"),
    "bytes overflow": (head(1, 0) + tensor("t", (2**62,)), "more bytes than int64"),
    "tensor type": (head(1, 0) + tensor("t", type_id=4), r"tensor type 4 is unknown.*41 \(q1_0\)"),
    "partial block": (
        head(1, 0) + tensor("t", (33,), TensorType.Q4_0),
        "rows have 33 elements; q4_0 needs a multiple of 32",
    ),
    "misaligned": (head(1, 0) + tensor("t", offset=4), "offset 4, which is not a multiple of"),
    "overlap": (
        head(2, 0) + tensor("t", (16,)) + tensor("u", offset=32),
        "offset 32, which overlaps.*64 is expected",
    ),
    "gap": (head(1, 0) + tensor("t", offset=64), "offset 64, which leaves a gap; 0 is expected"),
    "far offset": (head(1, 0) + tensor("t", offset=2**63), "lies beyond what int64 counts"),
}


@pytest.mark.parametrize(("raw", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_in_words(tmp_path: Path, raw: bytes, words: str):
    with pytest.raises(GgufError, match=words) as caught:
        open_raw(tmp_path, raw)

    assert caught.value.title.startswith("Cannot open m.gguf: ")
    assert "at byte" in caught.value.sentence
    assert caught.value.hint
    assert caught.value.details.endswith(str(tmp_path / "m.gguf"))


def test_a_fault_in_a_tensor_names_the_tensor_and_the_byte(tmp_path: Path):
    raw = head(1, 0) + tensor("blk.0.attn_q.weight", type_id=77)

    with pytest.raises(GgufError) as caught:
        open_raw(tmp_path, raw)

    at = raw.index(struct.pack("<I", 77))
    assert f"byte {at:,} of {len(raw):,}, in the entry of tensor 'blk.0.attn_q.weight'" in (
        caught.value.sentence
    )


def test_names_in_messages_hold_no_control_codes(tmp_path: Path):
    with pytest.raises(GgufError) as caught:
        open_raw(tmp_path, head(0, 2) + 2 * entry("\x1b[31m\n" + "k" * 90, 0, b"\0"))

    assert r"'\x1b[31m\x0akkk" in caught.value.title
    assert "k…'" in caught.value.title


def test_a_missing_file_a_folder_and_an_empty_file_are_named_as_such(tmp_path: Path):
    (tmp_path / "empty.gguf").touch()
    for path, words in (
        (tmp_path / "gone.gguf", "no such file"),
        (tmp_path, "it is a folder, not a file"),
        (tmp_path / "empty.gguf", "the file is empty"),
        (tmp_path / "empty.gguf" / "below", "the system cannot read it"),
        (tmp_path / "zero\0byte", "the system cannot read it"),
    ):
        with pytest.raises(GgufError, match=words):
            open_gguf(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipes_and_devices_are_refused_without_being_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(GgufError, match="a pipe or a device, not a file"):
            open_gguf(path)


@contextmanager
def ordinary_user():
    """Permissions do not bind the administrator, so give the rights up for a moment."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no POSIX permissions")
def test_a_file_that_may_not_be_read_says_so(tiny: Path):
    tiny.chmod(0)

    with ordinary_user(), pytest.raises(GgufError, match="reading it is not permitted"):
        open_gguf(tiny)


HEADERS = {
    "smollm2-135m-q4_1": (272, "output_norm.weight", 49_152),
    "gemma-3-270m-q4_k_m": (236, "output_norm.weight", 262_144),
    "deepseek-r1-distill-qwen-7b-q4_k_m": (339, "output_norm.weight", 152_064),
}


@pytest.mark.parametrize(
    "model",
    [
        name if name.startswith("smollm2") else pytest.param(name, marks=pytest.mark.big_set)
        for name in HEADERS
    ],
)
def test_real_headers_open_and_expect_the_size_of_the_real_file(model: str):
    n_tensors, name, n_vocab = HEADERS[model]
    path = golden.header(model)

    with open_gguf(path) as file:
        assert len(file.tensors) == n_tensors
        assert name in file
        assert len(values_of(file)["tokenizer.ggml.tokens"]) == n_vocab
        assert cut_of(file).there_bytes == 0
        assert file.data_offset == path.stat().st_size
        assert cut_of(file).expected_size == golden.header_sizes()[model]["file_bytes"]
