"""Sampler: logits to the next token; and what score wants to know of logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import ModelError

Logits = npt.NDArray[np.float32]
"""f32 [n_vocab], the logits of one position."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen; names and defaults are llama.cpp's.

    `temp` 0: always the most likely token. `top_k` 0 and `top_p` 1: no cut. `seed` None: a new one
    each time.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    seed: int | None = None


class Sampler:
    """Chooses tokens; the same seed and logits give the same tokens. One thread at a time.

    The order is that of llama.cpp's default chain as far as it goes here: top_k, top_p at
    temperature 1, then temperature. The random numbers are numpy's, not llama.cpp's.
    """

    def __init__(self, options: SamplingOptions) -> None:
        self._options = options
        self._random = np.random.default_rng(options.seed)

    def sample(self, logits: Logits) -> int:
        """The next token for f32 logits [n_vocab].

        Raises:
            ModelError: the logits hold NaN or no finite highest value.
        """
        _check(logits)
        options = self._options
        if options.temp <= 0:
            return int(np.argmax(logits))
        ids = _highest(logits, options.top_k if options.top_k > 0 else logits.size)
        ids = _nucleus(logits, ids, options.top_p)
        shares = np.cumsum(_softmax(logits[ids].astype(np.float64) / options.temp))
        i_chosen = int(np.searchsorted(shares, self._random.random() * shares[-1], side="right"))
        return int(ids[min(i_chosen, ids.size - 1)])


def gap(logits: Logits, token: int) -> float:
    """How far the logit of `token` lies below the highest; 0 when it is the highest.

    Raises:
        ModelError: the logits hold NaN or no finite highest value.
    """
    _check(logits)
    return float(logits.max()) - float(logits[token])


def _check(logits: Logits) -> None:
    if np.isfinite(logits.max()):
        return
    n_nan = int(np.isnan(logits).sum())
    raise no_numbers(f"NaN in {n_nan} of {logits.size} logits" if n_nan else "no finite logits")


def no_numbers(what: str) -> ModelError:
    """What to say of a model that computes what is no number; `what` it gave, and where."""
    return ModelError(
        f"The model produced {what}.",
        "Its weights are damaged or overflow in the type they are stored in, or a device computes "
        "wrongly.",
        "Run it on the CPU alone (-dev none): if that gives numbers, a device computes wrongly "
        "(python -m engine ops says which); else fetch the file again, or choose another "
        "quantisation.",
    )


def _highest(logits: Logits, n: int) -> npt.NDArray[np.intp]:
    """Ids of the n highest logits, highest first, the lower id first in a tie."""
    n = min(n, logits.size)
    if n < logits.size:
        lowest = np.partition(logits, logits.size - n)[logits.size - n]
        candidates = np.flatnonzero(logits >= lowest)
    else:
        candidates = np.arange(logits.size)
    order = np.argsort(-logits[candidates], kind="stable")
    return candidates[order[:n]]


def _nucleus(logits: Logits, ids: npt.NDArray[np.intp], top_p: float) -> npt.NDArray[np.intp]:
    """The first ids whose probabilities reach `top_p`, at least one."""
    if top_p >= 1:
        return ids
    reached = np.cumsum(_softmax(logits[ids].astype(np.float64))) >= top_p
    n_kept = int(np.argmax(reached)) + 1 if reached.any() else ids.size
    return ids[:n_kept]


def _softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = np.exp(values - values.max())
    shares /= shares.sum()
    return shares
