"""Operations on whole rows in plain numpy: what kernels must agree with.

Arrays have numpy's order, so a tensor [ne0, ne1, ne2, ne3] is an array (ne3, ne2, ne1, ne0).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def norm(x: Floats, eps: float) -> Floats:
    """Rows less their mean, divided by their standard deviation."""
    wide = x.astype(np.float64)
    wide = wide - wide.mean(-1, keepdims=True)
    deviation = np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return np.asarray(wide / deviation, np.float32)


def concat(a: Floats, b: Floats, dim: int) -> Floats:
    """A, then b behind it along ggml's dimension `dim`."""
    return np.concatenate([a, b], axis=a.ndim - 1 - dim)


def repeat(x: Floats, shape: tuple[int, ...]) -> Floats:
    """X over and over, until it has `shape`."""
    return np.tile(x, [n // small for n, small in zip(shape, x.shape, strict=True)])


def fill(shape: tuple[int, ...], value: float) -> Floats:
    """All elements alike."""
    return np.full(shape, value, np.float32)
