"""Embeddings: whether they are numbers, as data for programs, and as a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.text.sampling import no_numbers
from engine.trace.export.atomic import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from engine.core.summary import Embedded


def check_rows(rows: NDArray[np.float32]) -> None:
    """ModelError when a value is no finite number: nothing could be found by such a row."""
    is_finite = np.isfinite(rows)
    if is_finite.all():
        return
    n_nan = int(np.isnan(rows).sum())
    n, what = (n_nan, "NaN") if n_nan else (int((~is_finite).sum()), "infinity")
    raise no_numbers(f"{what} in {n} of {rows.size} values of the embedding")


def embedded_data(result: Embedded) -> dict[str, Any]:
    """What JSON can hold of it: every number."""
    return {
        "tokens": result.tokens,
        "pooling": result.pooling,
        "n_embd": result.rows.shape[1],
        "notes": list(result.summary.notes),
        "embeddings": [[float(value) for value in row] for row in result.rows],
    }


def write_rows(path: Path, result: Embedded) -> None:
    """Write the f32 rows as NumPy does; ExportError says what to do."""
    packed = io.BytesIO()
    np.save(packed, result.rows, allow_pickle=False)
    write_atomically(path, [packed.getvalue()])
