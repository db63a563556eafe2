"""A small embedding model with its weights, made at random."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.model.made_arch import made_header
from tests.engine.model.made_numbers import ENCODER

CLS, NONE = 2, 0
VOCABULARY: dict[str, Any] = {
    "tokenizer__ggml__model": "bert",
    "tokenizer__ggml__token_type": [3] * 5 + [1] * 91,
    "tokenizer__ggml__unknown_token_id": 1,
    "tokenizer__ggml__bos_token_id": 2,
    "tokenizer__ggml__seperator_token_id": 3,
}


def encoder(folder: Path, *, pooling: int = CLS, **keys: Any) -> str:
    """Return the path of a bert of 256 values a row; every word is one unknown token."""
    numbers: dict[str, Any] = {**ENCODER, **VOCABULARY, "pooling_type": pooling, **keys}
    with made_header(folder, "bert", whole=True, **numbers) as file:
        path, n_bytes = file.path, max(info.end for info in file.tensors)
    header = path.read_bytes()[:-n_bytes]
    weights = np.random.default_rng(0).normal(size=n_bytes // 4).astype(np.float32)
    path.write_bytes(header + weights.tobytes())
    return str(path)


def broken(folder: Path) -> str:
    """Return the path of the same model with a weight that is no number."""
    path = Path(encoder(folder))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + np.float32(np.nan).tobytes())
    return str(path)
