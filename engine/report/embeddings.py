"""Embeddings for programs: as data, and as a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.trace.export.atomic import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from engine.core.summary import Embedded


def embedded_data(result: Embedded) -> dict[str, Any]:
    """What JSON can hold of it: every number."""
    return {
        "tokens": result.tokens,
        "pooling": result.pooling,
        "n_embd": result.rows.shape[1],
        "embeddings": [[float(value) for value in row] for row in result.rows],
    }


def write_rows(path: Path, result: Embedded) -> None:
    """Write the f32 rows as NumPy does; ExportError says what to do."""
    packed = io.BytesIO()
    np.save(packed, result.rows, allow_pickle=False)
    write_atomically(path, [packed.getvalue()])
