"""Value types, and the metadata keys that more than one package reads.

Keys of an architecture begin with its name; `model.hparams` has them. Those of a tokenizer are in
`text.vocab`. Source: the GGUF specification and llama.cpp's key table.
"""

from __future__ import annotations

import enum


class ValueType(enum.IntEnum):
    """The type of a metadata value; the value is its id in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


ARCHITECTURE = "general.architecture"
NAME = "general.name"
ALIGNMENT = "general.alignment"
TOKENIZER_TOKENS = "tokenizer.ggml.tokens"
TOKENIZER_TOKEN_TYPE_COUNT = "tokenizer.ggml.token_type_count"
