"""Write a GGUF file: for tests and for recipes that derive one model from another.

write_gguf(path, {"general.architecture": "llama", "llama.block_count": 2},
           [("token_embd.weight", TensorType.F32, (64, 100), data)])
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.core.tensor import shape4
from engine.core.types import TensorType
from engine.gguf import keys, limits
from engine.gguf.cursor import DTYPES
from engine.gguf.keys import ValueType
from engine.gguf.reader import align_up
from engine.gguf.strings import StringArray

if TYPE_CHECKING:
    from os import PathLike

Data: TypeAlias = bytes | npt.NDArray[np.generic]
NewTensor: TypeAlias = tuple[str, TensorType, Sequence[int], Data]
"""Name, type, ne (1 to 4 numbers, ggml order) and the bytes, exactly as many as the shape needs."""

TensorSpec: TypeAlias = tuple[str, TensorType, Sequence[int]]

_TYPE_OF_DTYPE = {dtype: value_type for value_type, dtype in DTYPES.items()}
_INT_RANGES = (
    (ValueType.UINT32, 0, 2**32 - 1),
    (ValueType.INT32, -(2**31), 2**31 - 1),
    (ValueType.UINT64, 0, 2**64 - 1),
    (ValueType.INT64, -(2**63), 2**63 - 1),
)


def write_gguf(
    path: str | PathLike[str],
    metadata: Mapping[str, object],
    tensors: Sequence[NewTensor],
    *,
    alignment: int = limits.DEFAULT_ALIGNMENT,
    types: Mapping[str, ValueType] | None = None,
) -> None:
    """Write header and data; see `header_bytes` for metadata, alignment and types."""
    specs = [(name, tensor_type, ne) for name, tensor_type, ne, _ in tensors]
    header = header_bytes(metadata, specs, alignment=alignment, types=types)
    with Path(path).open("wb") as stream:
        stream.write(header)
        for name, tensor_type, ne, data in tensors:
            raw = data if isinstance(data, bytes) else data.tobytes()
            assert len(raw) == _n_bytes(tensor_type, ne), (name, ne, len(raw))
            stream.write(_padded(raw, alignment))


def header_bytes(
    metadata: Mapping[str, object],
    tensors: Iterable[TensorSpec],
    *,
    alignment: int = limits.DEFAULT_ALIGNMENT,
    types: Mapping[str, ValueType] | None = None,
) -> bytes:
    """Everything before the tensor data, padded to the alignment.

    A numpy scalar or array keeps its type. A plain int becomes UINT32, or the first of INT32,
    UINT64, INT64 that holds it; a plain float FLOAT32; a list an array of its items' type.
    `types` overrides single values, such as those that `GgufFile.value_types` gives (optional).
    An alignment other than the default is written as `general.alignment`.
    """
    entries = dict(metadata)
    if alignment != limits.DEFAULT_ALIGNMENT:
        entries[keys.ALIGNMENT] = np.uint32(alignment)
    table = list(tensors)
    parts = [limits.MAGIC, struct.pack("<IQQ", limits.VERSION, len(table), len(entries))]
    for key, value in entries.items():
        parts += [_string(key), _entry(value, (types or {}).get(key))]
    offset = 0
    for name, tensor_type, ne in table:
        parts.append(_tensor_entry(name, tensor_type, ne, offset))
        offset = align_up(offset + _n_bytes(tensor_type, ne), alignment)
    return _padded(b"".join(parts), alignment)


def _tensor_entry(name: str, tensor_type: TensorType, ne: Sequence[int], offset: int) -> bytes:
    shape = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
    return _string(name) + shape + struct.pack("<IQ", tensor_type, offset)


def _entry(value: object, value_type: ValueType | None) -> bytes:
    """The type of a metadata value and its bytes."""
    if isinstance(value, str | bytes):
        return struct.pack("<I", ValueType.STRING) + _string(value)
    if isinstance(value, StringArray | np.ndarray | list | tuple):
        return struct.pack("<I", ValueType.ARRAY) + _array(value)
    scalar_type = _number_type([value]) if value_type is None else value_type
    return struct.pack("<I", scalar_type) + np.array(value, DTYPES[scalar_type]).tobytes()


def _number_type(values: Sequence[object]) -> ValueType:
    """The type of plain or numpy numbers, of which the first tells the kind."""
    first = values[0]
    if isinstance(first, np.generic):
        return _TYPE_OF_DTYPE[first.dtype]
    if isinstance(first, bool):
        return ValueType.BOOL
    if isinstance(first, float):
        return ValueType.FLOAT32
    if not isinstance(first, int):
        raise TypeError(f"a GGUF file holds no {type(first).__name__}: {first!r}")
    numbers = np.array(values, dtype=object)
    for value_type, low, high in _INT_RANGES:
        if low <= numbers.min() and numbers.max() <= high:
            return value_type
    raise TypeError(f"no integer type of GGUF holds {values!r}")


def _array(value: object) -> bytes:
    """The type of an array's items, their number, and the items."""
    if isinstance(value, StringArray):
        items = [value.raw(i) for i in range(len(value))]
        return _array_head(ValueType.STRING, len(items)) + b"".join(map(_string, items))
    if isinstance(value, np.ndarray):
        return _array_head(_TYPE_OF_DTYPE[value.dtype], value.size) + value.tobytes()
    assert isinstance(value, list | tuple), value
    if not value:
        raise TypeError("an empty list has no type; give an empty numpy array or a StringArray")
    if isinstance(value[0], str | bytes):
        return _array(StringArray.of(value))
    return _array(np.array(value, DTYPES[_number_type(value)]))


def _array_head(item_type: ValueType, n: int) -> bytes:
    return struct.pack("<IQ", item_type, n)


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _n_bytes(tensor_type: TensorType, ne: Sequence[int]) -> int:
    shape = shape4(*ne)
    return tensor_type.row_bytes(shape[0]) * shape[1] * shape[2] * shape[3]


def _padded(raw: bytes, alignment: int) -> bytes:
    return raw + bytes(-len(raw) % alignment)
