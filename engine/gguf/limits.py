"""Every cap of the reader, each with its reason.

The rule above all: a count or a length in a file is believed only if the rest of the file is long
enough to hold what it announces, so nothing is allocated that the file's size cannot justify. The
caps below bound time and nonsense on files that are long enough for anything.
"""

from __future__ import annotations

from engine.core.tensor import MAX_NAME

MAGIC = b"GGUF"
"""What a file begins with."""

VERSION = 3
"""The only version read: 1 has other count widths, 2 is no longer written by any converter."""

MAX_KEYS = 1 << 16
"""Metadata entries; real files have about 50."""

MAX_TENSORS = 1 << 18
"""Tensors; the largest models in use have about 3 000."""

MAX_KEY_BYTES = 65_535
"""Length of a key; the specification's cap."""

MAX_STRING_BYTES = 64 << 20
"""Length of one string; the longest in use are embedded tokenizer files of 20 MB."""

MAX_ARRAY_ELEMS = 1 << 24
"""Items of one array; the largest vocabularies have 262 144."""

MAX_DIMS = 4
"""Dimensions of a tensor; ggml's GGML_MAX_DIMS."""

MAX_INT64 = (1 << 63) - 1
"""Elements and bytes of a tensor, and file positions, are int64 in ggml."""

MAX_NAME_BYTES = MAX_NAME
"""Length of a tensor name; ggml keeps 63 bytes and a zero."""

DEFAULT_ALIGNMENT = 32
"""Alignment of tensor data where the file names none; the specification's default."""

MIN_ALIGNMENT = 8
"""The specification asks for a multiple of 8, the width of the largest plain type."""

MAX_ALIGNMENT = 2 << 20
"""A huge page; more only wastes the file."""

MIN_KEY_BYTES = 8 + 1 + 4 + 1
"""The shortest metadata entry: length of the key, one letter, value type, one byte."""

MIN_TENSOR_BYTES = 8 + 4 + 4 + 8
"""The shortest tensor entry: length of the name, number of dimensions, type, offset."""

MIN_STRING_BYTES = 8
"""The shortest string: its length."""
