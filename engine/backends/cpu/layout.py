"""One row of the op table: where the interpreter and the kernels find what.

A row is ROW_WORDS int64. Constants are byte offsets into it. Floats stand as float64 bits.
A tensor takes nine words: address of its first byte, ne[0..3], nb[0..3].
"""

from __future__ import annotations

ROW_WORDS = 64
ROW_BYTES = 8 * ROW_WORDS

KERNEL = 0
"""Address of the kernel."""
FLAGS = 8
"""PARALLEL and BARRIER."""
SHARED = 16
"""Address of scratch memory that all threads share: quantised activations, rotation angles."""
OWN = 24
"""Address of scratch memory of thread 0; thread i's is OWN_BYTES * i further."""
OWN_BYTES = 32
PARAMS = 40
"""Up to eleven parameters."""

DST = 128
SRC0 = DST + 72
SRC1 = SRC0 + 72
SRC2 = SRC1 + 72
SRC3 = SRC2 + 72

PARALLEL = 1
"""Every thread runs the kernel; else thread 0 alone."""
BARRIER = 2
"""Threads meet after this row."""

STATUS_OK = 0
STATUS_BAD_INDEX = 1
"""An index points outside the table it selects from."""

KIND_F32 = 0
KIND_F16 = 1
KIND_Q4_0 = 2
KIND_Q4_1 = 3
KIND_Q8_0 = 8
KIND_Q8_1 = 9
KIND_Q6_K = 14
KIND_Q8_K = 15
KIND_I32 = 26
KIND_I64 = 27
