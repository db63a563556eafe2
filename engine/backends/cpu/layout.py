"""One row of the op table: where the interpreter and the kernels find what.

A row is ROW_WORDS int64. Constants are byte offsets into it. Floats stand as float64 bits.
A tensor takes nine words: address of its first byte, ne[0..3], nb[0..3].
"""

from __future__ import annotations

ROW_WORDS = 96
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
"""Up to fifteen parameters."""

DST = 160
SRC0 = DST + 72
SRC1 = SRC0 + 72
SRC2 = SRC1 + 72
SRC3 = SRC2 + 72
SRC4 = SRC3 + 72
SRC5 = SRC4 + 72
SRC6 = SRC5 + 72

PARALLEL = 1
"""Every thread runs the kernel; else thread 0 alone."""
BARRIER = 2
"""Threads meet after this row."""

GROUP_ROWS = 4
"""Rows of a register tile; in CPU_REPACK the blocks of so many rows lie side by side.

One rule finds block j of row r of a weight in both layouts: r // GROUP_ROWS group strides,
r % GROUP_ROWS strides nb[1] and j strides nb[0] from the first; a row of the table carries the
strides of the layout that the weight has.
"""

STATUS_OK = 0
STATUS_BAD_INDEX = 1
"""An index points outside the table it selects from."""

KIND_F32 = 0
KIND_F16 = 1
KIND_Q4_0 = 2
KIND_Q4_1 = 3
KIND_Q5_0 = 6
KIND_Q5_1 = 7
KIND_Q8_0 = 8
KIND_Q8_1 = 9
KIND_Q4_K = 12
KIND_Q5_K = 13
KIND_Q6_K = 14
KIND_Q8_K = 15
KIND_IQ4_NL = 20
KIND_I32 = 26
KIND_I64 = 27
KIND_BF16 = 30
KIND_MXFP4 = 39
