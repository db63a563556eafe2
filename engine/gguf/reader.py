"""Open a GGUF file: its metadata and its tensor table, with the data mapped and untouched.

    with open_gguf("model.gguf") as file:
        n_layer = file.metadata["llama.block_count"]
        info = file.tensor("token_embd.weight")
        raw = file.tensor_bytes(info)               # a read-only view of the mapping

A file that ends before its last tensor opens all the same and says so in `truncated`: planning
needs the header only. Source: the GGUF specification; what is refused follows ggml's own reader.
"""

from __future__ import annotations

import math
import mmap
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.core.tensor import Shape, shape4
from engine.core.types import TensorType
from engine.errors import GgufError
from engine.gguf import keys, limits
from engine.gguf.copied_parts import CopiedParts
from engine.gguf.cursor import DTYPES, Cursor, NumberArray, Scalar
from engine.gguf.faults import Source, shown
from engine.gguf.huge_pages import bring_in
from engine.gguf.keys import ValueType
from engine.gguf.strings import StringArray

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike
    from types import TracebackType

Value = Scalar | str | StringArray | NumberArray
"""A metadata value: a number, a truth value, a string, or a read-only array of one of these."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A line of the tensor table.

    `ne` is in ggml order; `offset` counts from the start of the data section; `i` is the place in
    the file.
    """

    name: str
    type: TensorType
    ne: Shape
    offset: int
    n_bytes: int
    i: int

    @property
    def end(self) -> int:
        """Where its bytes end, from the start of the data section."""
        return self.offset + self.n_bytes


@dataclass(frozen=True, slots=True)
class TruncatedTensor:
    """The first tensor whose bytes are not all in the file.

    `start` and `stop` are file positions, `there_bytes` is how many of them the file has,
    `expected_size` is the least size of a complete file.
    """

    name: str
    i: int
    start: int
    stop: int
    there_bytes: int
    expected_size: int


@dataclass(frozen=True, slots=True)
class Header:
    """All that stands before the tensor data."""

    version: int
    alignment: int
    metadata: Mapping[str, Value]
    value_types: Mapping[str, ValueType]
    tensors: tuple[TensorInfo, ...]
    data_offset: int


class GgufFile:
    """An open file. Reading is safe from any thread; the file must not be shortened meanwhile."""

    def __init__(self, source: Source, mapping: mmap.mmap, header: Header) -> None:
        self.path = source.path
        self.size = source.size
        self.version = header.version
        self.alignment = header.alignment
        self.metadata = header.metadata
        self.value_types = header.value_types
        self.tensors = header.tensors
        self.data_offset = header.data_offset
        self.truncated = find_truncated(header, source.size)
        self._source = source
        self._mapping: mmap.mmap | None = mapping
        self._by_name = {info.name: info for info in header.tensors}

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def close(self) -> None:
        """Let go of the file; views that were given out stay valid and keep the mapping alive."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            with suppress(BufferError):
                mapping.close()

    def tensor(self, name: str) -> TensorInfo:
        """The line of tensor `name`.

        Raises:
            GgufError: the file has no such tensor; `in` asks without raising.
        """
        info = self._by_name.get(name)
        if info is None:
            raise GgufError(
                f"Cannot use {self.path.name}: it has no tensor {shown(name)}.",
                f"Its tensor table has {len(self.tensors):,} other entries.",
                "The file belongs to another kind of model, or is one part of several.",
                str(self.path),
            )
        return info

    def tensor_bytes(self, info: TensorInfo) -> Bytes:
        """The bytes of a tensor: a read-only view of the mapping.

        Raises:
            GgufError: the file ends before the tensor does.
        """
        start = self.data_offset + info.offset
        if start + info.n_bytes > self.size:
            raise self._ends_early(info.name, start, info.n_bytes)
        return self.mapped_bytes(start, start + info.n_bytes)

    def mapped_bytes(self, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` of the file, header included, as a read-only view."""
        assert self._mapping is not None, f"{self.path} is closed"
        assert 0 <= start <= stop <= self.size, (start, stop, self.size)
        return np.frombuffer(self._mapping, np.uint8, stop - start, start)

    def bring_in(self) -> Iterator[int]:
        """Bring the file into memory before it is needed; gives the bytes done, now and then.

        See huge_pages.py; gives nothing where the system cannot be asked for that.
        """
        assert self._mapping is not None, f"{self.path} is closed"
        return bring_in(self._mapping, self.path)

    def copied_parts(self) -> CopiedParts:
        """For whoever copies tensors: a span that was copied need not stay in memory."""
        assert self._mapping is not None, f"{self.path} is closed"
        return CopiedParts(self._mapping)

    def span_of(self, info: TensorInfo) -> tuple[int, int]:
        """Where a tensor begins in the file, and where the next one can."""
        start = self.data_offset + info.offset
        return start, min(start + align_up(info.n_bytes, self.alignment), self.size)

    def _ends_early(self, name: str, start: int, n_bytes: int) -> GgufError:
        return GgufError(
            f"Cannot read {self.path.name}: the file ends {start + n_bytes - self.size:,} bytes"
            f" early (tensor {shown(name)} needs {n_bytes:,} bytes from byte {start:,} on).",
            f"It has {self.size:,} bytes.",
            "Download it again; planning works with what is there.",
            str(self.path),
        )


def open_gguf(path: str | PathLike[str]) -> GgufFile:
    """The open file at `path`; no tensor data is read.

    Raises:
        GgufError: the path is no readable regular file, or the file is not a sound GGUF.
    """
    where = Path(path)
    mapping = _map_file(where)
    source = Source(where, len(mapping))
    try:
        header = read_header(mapping, source)
    except GgufError:
        mapping.close()
        raise
    return GgufFile(source, mapping, header)


def read_header(data: bytes | mmap.mmap, source: Source) -> Header:
    """The header at the start of `data`, which is the whole file or as much as there is of it."""
    cursor = Cursor(data, source)
    _check_magic(cursor)
    _check_version(cursor)
    cursor.where = "in the counts at the start"
    n_tensors = cursor.count("tensors", most=limits.MAX_TENSORS, min_bytes=limits.MIN_TENSOR_BYTES)
    n_keys = cursor.count("metadata entries", most=limits.MAX_KEYS, min_bytes=limits.MIN_KEY_BYTES)
    metadata, value_types = _read_metadata(cursor, n_keys)
    alignment = _alignment(cursor, metadata, value_types)
    tensors = _read_tensors(cursor, n_tensors, alignment)
    return Header(
        limits.VERSION,
        alignment,
        MappingProxyType(metadata),
        MappingProxyType(value_types),
        tensors,
        align_up(cursor.pos, alignment),
    )


def find_truncated(header: Header, size: int) -> TruncatedTensor | None:
    """The first tensor that a file of `size` bytes does not hold whole; None when all are there."""
    ends = [header.data_offset + info.end for info in header.tensors if info.n_bytes]
    for info in header.tensors:
        start = header.data_offset + info.offset
        stop = start + info.n_bytes
        if info.n_bytes and stop > size:
            there = max(0, size - start)
            return TruncatedTensor(info.name, info.i, start, stop, there, max(ends))
    return None


def align_up(n_bytes: int, alignment: int) -> int:
    """`n_bytes` rounded up to a multiple of `alignment`, a power of two."""
    return (n_bytes + alignment - 1) & -alignment


# --- the file -------------------------------------------------------------------------------


def _map_file(path: Path) -> mmap.mmap:
    """The whole file, mapped for reading. A pipe or a device is refused before it is opened."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise _not_a_file(path, facts.st_mode)
        if facts.st_size == 0:
            raise GgufError(
                f"Cannot open {path.name}: the file is empty.",
                hint="Download the file again.",
                details=str(path),
            )
        with path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise _cannot_open(path, error) from error


def _not_a_file(path: Path, mode: int) -> GgufError:
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
    return GgufError(
        f"Cannot open {path.name or path}: it is {kind}, not a file.",
        hint="Choose a .gguf file.",
        details=str(path),
    )


def _cannot_open(path: Path, error: OSError | ValueError) -> GgufError:
    """What the system says, in words; ValueError is a path no system accepts."""
    if isinstance(error, FileNotFoundError):
        why, hint = "there is no such file.", "Check the path."
    elif isinstance(error, PermissionError):
        why, hint = "reading it is not permitted.", "Ask its owner for the right to read it."
    else:
        why, hint = f"the system cannot read it ({error}).", "Check the path and the disk."
    return GgufError(f"Cannot open {shown(path.name)}: {why}", hint=hint, details=shown(str(path)))


# --- the header -----------------------------------------------------------------------------


def _check_magic(cursor: Cursor) -> None:
    cursor.where = "in the file's first letters"
    found = cursor.take(min(len(limits.MAGIC), cursor.source.size))
    if found != limits.MAGIC:
        raise cursor.source.fault(
            f"it is not a GGUF file (it starts with {shown(found.decode('latin-1'))}, not 'GGUF').",
            at=0,
            where=cursor.where,
            hint="Choose a .gguf file.",
        )


def _check_version(cursor: Cursor) -> None:
    cursor.where = "in the version number"
    at = cursor.pos
    version = cursor.u32()
    if version == limits.VERSION:
        return
    # ggml's test: no version comes near 65536, so an empty low half is a byte-swapped number.
    if version and version & 0xFFFF == 0:
        sentence = "it is a big-endian GGUF file; Splitscope reads little-endian ones."
        hint = "Convert the model again for this kind of computer."
    elif version > limits.VERSION:
        sentence = f"it has version {version} of the format; this Splitscope reads version 3."
        hint = "A later version of Splitscope may read it."
    else:
        sentence = f"it has version {version} of the format; Splitscope reads version 3."
        hint = "Convert the model again with a current converter."
    raise cursor.source.fault(sentence, at=at, where=cursor.where, hint=hint)


def _read_metadata(cursor: Cursor, n_keys: int) -> tuple[dict[str, Value], dict[str, ValueType]]:
    """Every entry's value, and its type as it stands in the file (ARRAY for arrays)."""
    metadata: dict[str, Value] = {}
    value_types: dict[str, ValueType] = {}
    for i in range(n_keys):
        cursor.where = f"in the key of metadata entry {i:,}"
        at = cursor.pos
        key = cursor.string("the key", most=limits.MAX_KEY_BYTES)
        if not key:
            cursor.fail("a metadata entry has an empty key.", at=at)
        if key in metadata:
            cursor.fail(f"the key {shown(key)} occurs twice.", at=at)
        cursor.where = f"in the value of key {shown(key)}"
        value_types[key] = _value_type(cursor)
        metadata[key] = _value(cursor, value_types[key])
    return metadata, value_types


def _value_type(cursor: Cursor) -> ValueType:
    at = cursor.pos
    code = cursor.u32()
    try:
        return ValueType(code)
    except ValueError:
        cursor.fail(f"value type {code} is unknown; types 0 to 12 are allowed.", at=at)


def _value(cursor: Cursor, value_type: ValueType) -> Value:
    if value_type is ValueType.STRING:
        return cursor.string("a string", most=limits.MAX_STRING_BYTES)
    if value_type is ValueType.ARRAY:
        return _array(cursor)
    return cursor.scalar(value_type)


def _array(cursor: Cursor) -> StringArray | NumberArray:
    at = cursor.pos
    item_type = _value_type(cursor)
    if item_type is ValueType.ARRAY:
        cursor.fail("an array of arrays is not allowed; ggml has none either.", at=at)
    if item_type is ValueType.STRING:
        n = cursor.count("strings", most=limits.MAX_ARRAY_ELEMS, min_bytes=limits.MIN_STRING_BYTES)
        return cursor.strings(n)
    n = cursor.count("numbers", most=limits.MAX_ARRAY_ELEMS, min_bytes=DTYPES[item_type].itemsize)
    return cursor.numbers(item_type, n)


def _alignment(
    cursor: Cursor, metadata: Mapping[str, Value], value_types: Mapping[str, ValueType]
) -> int:
    alignment = metadata.get(keys.ALIGNMENT, limits.DEFAULT_ALIGNMENT)
    cursor.where = f"in the value of key '{keys.ALIGNMENT}'"
    value_type = value_types.get(keys.ALIGNMENT, ValueType.UINT32)
    if value_type is not ValueType.UINT32 or not isinstance(alignment, int):
        cursor.fail(
            f"the alignment is of type {value_type.name}; it must be UINT32.", at=cursor.pos
        )
    in_range = limits.MIN_ALIGNMENT <= alignment <= limits.MAX_ALIGNMENT
    if not in_range or alignment & (alignment - 1):
        cursor.fail(
            f"the alignment is {alignment:,}; it must be a power of two from"
            f" {limits.MIN_ALIGNMENT} to {limits.MAX_ALIGNMENT:,}.",
            at=cursor.pos,
        )
    return alignment


def _read_tensors(cursor: Cursor, n_tensors: int, alignment: int) -> tuple[TensorInfo, ...]:
    """The tensor table: in file order each tensor starts where the one before it ends, padded."""
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    expected = 0
    for i in range(n_tensors):
        info = _read_tensor(cursor, i, names)
        _check_offset(cursor, info, expected, alignment)
        expected = align_up(info.end, alignment)
        tensors.append(info)
    return tuple(tensors)


def _read_tensor(cursor: Cursor, i: int, names: set[str]) -> TensorInfo:
    cursor.where = f"in the name of tensor {i:,}"
    at = cursor.pos
    name = cursor.string("a tensor's name", most=limits.MAX_NAME_BYTES)
    if name in names:
        cursor.fail(f"the tensor name {shown(name)} occurs twice.", at=at)
    names.add(name)
    cursor.where = f"in the entry of tensor {shown(name)}"
    ne = _shape(cursor)
    tensor_type = _tensor_type(cursor)
    n_bytes = _n_bytes(cursor, tensor_type, ne)
    return TensorInfo(name, tensor_type, ne, cursor.u64(), n_bytes, i)


def _shape(cursor: Cursor) -> Shape:
    at = cursor.pos
    n_dims = cursor.u32()
    if n_dims > limits.MAX_DIMS:
        cursor.fail(
            f"a tensor has {n_dims:,} dimensions; at most {limits.MAX_DIMS} are allowed.", at=at
        )
    ne = shape4(*[cursor.u64() for _ in range(n_dims)] or [1])
    if max(ne) > limits.MAX_INT64 or math.prod(ne) > limits.MAX_INT64:
        cursor.fail(f"a tensor of shape {list(ne)} has more elements than int64 counts.", at=at)
    return ne


def _tensor_type(cursor: Cursor) -> TensorType:
    at = cursor.pos
    code = cursor.u32()
    try:
        return TensorType(code)
    except ValueError:
        highest = max(TensorType)
        cursor.fail(
            f"tensor type {code} is unknown; the highest known is {highest:d} ({highest.label}).",
            at=at,
        )


def _n_bytes(cursor: Cursor, tensor_type: TensorType, ne: Shape) -> int:
    at = cursor.pos
    if ne[0] % tensor_type.block_elems:
        cursor.fail(
            f"a tensor's rows have {ne[0]:,} elements; {tensor_type.label} needs a multiple of"
            f" {tensor_type.block_elems}.",
            at=at,
        )
    n_bytes = tensor_type.row_bytes(ne[0]) * ne[1] * ne[2] * ne[3]
    if n_bytes > limits.MAX_INT64:
        cursor.fail(f"a tensor of shape {list(ne)} has more bytes than int64 counts.", at=at)
    return n_bytes


def _check_offset(cursor: Cursor, info: TensorInfo, expected: int, alignment: int) -> None:
    """Check that the tensor starts where the data so far ends: ggml refuses gaps as well."""
    if info.offset == expected and info.end <= limits.MAX_INT64:
        return
    if info.end > limits.MAX_INT64:
        why = "lies beyond what int64 counts"
    elif info.offset % alignment:
        why = f"is not a multiple of the alignment, {alignment}"
    elif info.offset < expected:
        why = "overlaps the tensor before it"
    else:
        why = "leaves a gap"
    cursor.fail(
        f"the data of tensor {shown(info.name)} starts at offset {info.offset:,}, which {why};"
        f" {expected:,} is expected.",
        at=cursor.pos - 8,
    )
