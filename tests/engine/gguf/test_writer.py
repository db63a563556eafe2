"""What we write is read by us and by the gguf package alike, and the other way round."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.core.types import TensorType
from engine.errors import GgufError
from engine.gguf import keys
from engine.gguf.keys import ValueType
from engine.gguf.reader import open_gguf
from engine.gguf.strings import StringArray
from engine.gguf.writer import header_bytes, write_gguf

METADATA = {
    keys.ARCHITECTURE: "llama",
    "llama.block_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    keys.TOKENIZER_TOKENS: ["<s>", "héllo", "▁a"],
    "tokenizer.ggml.scores": [0.0, -1.5, 2.0],
    "test.i8": np.int8(-3),
    "test.truth": True,
    "test.wide": np.array([2**40, -1], np.int64),
}
WEIGHTS = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
TENSORS = [
    ("a.weight", TensorType.F32, (64, 2), WEIGHTS),
    ("b.weight", TensorType.Q8_0, (64, 2), gguf.quantize(WEIGHTS, gguf.GGMLQuantizationType.Q8_0)),
    ("c.bias", TensorType.I32, (3,), np.array([1, 2, 3], np.int32)),
]


@pytest.mark.parametrize("alignment", [32, 256])
def test_the_gguf_package_reads_what_we_write(tmp_path: Path, alignment: int):
    path = tmp_path / "ours.gguf"

    write_gguf(path, METADATA, TENSORS, alignment=alignment)

    theirs = gguf.GGUFReader(path)
    assert theirs.alignment == alignment
    for key, value in METADATA.items():
        field = theirs.get_field(key)
        assert field is not None
        read = field.contents()
        assert read == (pytest.approx(value) if isinstance(value, float) else list_of(value))
    for tensor, (name, tensor_type, ne, data) in zip(theirs.tensors, TENSORS, strict=True):
        assert (tensor.name, int(tensor.tensor_type)) == (name, tensor_type)
        assert tuple(tensor.shape) == ne
        assert tensor.data.tobytes() == data.tobytes()


def list_of(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_we_read_what_the_gguf_package_writes(tmp_path: Path):
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "héllo"])
    writer.add_array("test.truths", [True, False])
    writer.add_array("test.ints", [1, -2])
    writer.add_custom_alignment(64)
    for name, _, _, data in TENSORS[::2]:
        writer.add_tensor(name, data)
    writer.add_tensor("b.weight", TENSORS[1][3], raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with open_gguf(path) as file:
        metadata: dict[str, Any] = dict(file.metadata)
        assert metadata[keys.ARCHITECTURE] == "llama"
        assert metadata["llama.block_count"] == 2
        assert metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
        assert list(metadata[keys.TOKENIZER_TOKENS]) == ["<s>", "héllo"]
        assert metadata["test.truths"].tolist() == [True, False]
        assert metadata["test.ints"].tolist() == [1, -2]
        assert file.alignment == 64
        for name, tensor_type, ne, data in TENSORS:
            info = file.tensor(name)
            assert (info.type, info.ne[: len(ne)]) == (tensor_type, ne)
            assert file.tensor_bytes(info).tobytes() == data.tobytes()


def test_a_file_written_from_what_was_read_is_the_same_file(tmp_path: Path):
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    metadata = METADATA | {"test.u64": np.uint64(1), "test.f64": np.float64(0.1)}
    metadata["test.raws"] = StringArray.of([b"\xff", "a"])
    write_gguf(first, metadata, TENSORS)

    with open_gguf(first) as file:
        tensors = [(t.name, t.type, t.ne, file.tensor_bytes(t).tobytes()) for t in file.tensors]
        write_gguf(second, file.metadata, tensors, types=file.value_types)

    with open_gguf(first) as one, open_gguf(second) as two:
        assert two.value_types == one.value_types
        assert two.tensors == one.tensors
        raws = two.metadata["test.raws"]
        assert isinstance(raws, StringArray)
        assert raws.raw(0) == b"\xff"
        assert two.metadata["test.f64"] == 0.1
        assert [two.tensor_bytes(t).tobytes() for t in two.tensors] == [t[3] for t in tensors]


@pytest.mark.parametrize(
    ("value", "value_type"),
    [
        (1, ValueType.UINT32), (-1, ValueType.INT32), (2**32, ValueType.UINT64),
        (-(2**40), ValueType.INT64), (0.5, ValueType.FLOAT32), (False, ValueType.BOOL),
        ("s", ValueType.STRING), (np.float64(0.5), ValueType.FLOAT64), ([1], ValueType.ARRAY),
    ],
)  # fmt: skip
def test_plain_values_get_the_smallest_usual_type(
    tmp_path: Path, value: object, value_type: ValueType
):
    (tmp_path / "m.gguf").write_bytes(header_bytes({"k": value}, []))

    with open_gguf(tmp_path / "m.gguf") as file:
        assert file.value_types["k"] is value_type


def test_a_list_of_numbers_gets_a_type_that_holds_all(tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(header_bytes({"k": [1, -1]}, []))

    with open_gguf(tmp_path / "m.gguf") as file:
        value = file.metadata["k"]
        assert isinstance(value, np.ndarray)
        assert value.dtype == np.int32


@pytest.mark.parametrize("value", [[], None, {}, 2**64])
def test_values_without_a_type_are_refused(value: object):
    with pytest.raises(TypeError):
        header_bytes({"k": value}, [])


def test_data_that_does_not_fit_the_shape_is_refused(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"a\.weight"):
        write_gguf(tmp_path / "m.gguf", {}, [("a.weight", TensorType.F32, (4,), b"\0" * 12)])


def test_the_alignment_is_part_of_the_header(tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(header_bytes({}, [], alignment=4))

    with pytest.raises(GgufError, match="alignment is 4"):
        open_gguf(tmp_path / "m.gguf")
