"""Predictions, for people and for programs; each says that nothing was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import counted, ms, plain
from engine.cli.together_words import print_together, together_data

if TYPE_CHECKING:
    from engine.report.prediction import Prediction


def prediction_data(figures: Prediction) -> dict[str, Any]:
    """A prediction for programs."""
    data: dict[str, Any] = {"predicted": True} | plain(figures)
    return data | {
        "together": together_data(figures.together),
        "predicted_prompt_tokens_per_s": figures.prompt_tokens_per_s,
        "predicted_tokens_per_s": figures.tokens_per_s,
    }


def print_prediction(figures: Prediction) -> None:
    """Speeds, and how the devices worked together."""
    print("Predicted, not measured: the devices exist on paper only.")
    print(f"prompt {_prompt_words(figures)} · generation {_generation_words(figures)}")
    print_together(figures.together)


def _prompt_words(figures: Prediction) -> str:
    tokens = counted(figures.n_prompt_tokens, "token")
    return f"{tokens} in {ms(figures.prompt_ns)} ms, {figures.prompt_tokens_per_s:,.1f} tokens/s"


def _generation_words(figures: Prediction) -> str:
    # The first token is the prompt's own: with it alone there is no speed.
    speed = f", {figures.tokens_per_s:,.1f} tokens/s" if figures.n_tokens > 1 else ""
    return f"{counted(figures.n_tokens, 'token')}{speed}"
