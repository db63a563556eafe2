"""Every ggml tensor type: name, elements per block, bytes per block."""

from __future__ import annotations

import enum


class TensorType(enum.IntEnum):
    """A tensor type; the value is its id in GGUF files."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    @property
    def label(self) -> str:
        """The name ggml prints, such as `q4_1` or `q4_K`."""
        return _LABEL[self]

    @property
    def block_elems(self) -> int:
        """Elements in one block; 1 for plain types."""
        return _LAYOUT[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return _LAYOUT[self][1]

    @property
    def is_quantized(self) -> bool:
        """Whether elements are stored in blocks with scales."""
        return self not in _PLAIN

    def row_bytes(self, n_elems: int) -> int:
        """Bytes of a row of `n_elems`, which must be a whole number of blocks."""
        block_elems, block_bytes = _LAYOUT[self]
        return n_elems // block_elems * block_bytes


# (elements, bytes) of a block; source: the block structs of ggml-common.h.
_LAYOUT: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q8_1: (32, 36),
    TensorType.Q2_K: (256, 84),
    TensorType.Q3_K: (256, 110),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.Q8_K: (256, 292),
    TensorType.IQ2_XXS: (256, 66),
    TensorType.IQ2_XS: (256, 74),
    TensorType.IQ3_XXS: (256, 98),
    TensorType.IQ1_S: (256, 50),
    TensorType.IQ4_NL: (32, 18),
    TensorType.IQ3_S: (256, 110),
    TensorType.IQ2_S: (256, 82),
    TensorType.IQ4_XS: (256, 136),
    TensorType.I8: (1, 1),
    TensorType.I16: (1, 2),
    TensorType.I32: (1, 4),
    TensorType.I64: (1, 8),
    TensorType.F64: (1, 8),
    TensorType.IQ1_M: (256, 56),
    TensorType.BF16: (1, 2),
    TensorType.TQ1_0: (256, 54),
    TensorType.TQ2_0: (256, 66),
    TensorType.MXFP4: (32, 17),
    TensorType.NVFP4: (64, 36),
    TensorType.Q1_0: (128, 18),
}

_PLAIN = frozenset(t for t, (block_elems, _) in _LAYOUT.items() if block_elems == 1)

# ggml writes the K of the K-quants in capitals and everything else small.
_LABEL = {
    t: t.name[:-1].lower() + "K" if t.name.endswith("_K") else t.name.lower() for t in _LAYOUT
}

TYPE_BY_LABEL: dict[str, TensorType] = {label: t for t, label in _LABEL.items()}
