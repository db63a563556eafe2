"""What an option's value looks like in a field, and which value a typed text is. Pure."""

from __future__ import annotations

from typing import Any

from engine.core.options import DEFAULTS, SPEC_BY_FIELD

WORDS: dict[str, dict[int, str]] = {
    "n_gpu_layers": {-1: "all", -2: "all"},
    "main_gpu": {-1: "none"},
    "n_ctx": {0: "model's"},
    "n_threads": {0: "auto"},
    "seed": {-1: "random"},
}
"""Numbers that are shown, and may be typed, as words; of two with one word the first is meant."""

UNSET = {"devices": "auto", "tensor_split": "auto"}
"""What the default of a list is called: llama.cpp's own choice."""


EXAMPLES = {"tensor_split": "3,1 gives the first GPU three quarters of the layers"}
"""What may be typed where the rule alone is hard to follow."""


def refusal_words(field: str, sentence: str) -> str:
    """Why a text is refused, and an example of one that is not."""
    example = EXAMPLES.get(field)
    return sentence if example is None else f"{sentence} For example: {example}."


def text_of(field: str, value: Any) -> str:
    """The value as it stands in a field."""
    if field in UNSET and value == getattr(DEFAULTS, field):
        return UNSET[field]
    if isinstance(value, tuple):
        return ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return WORDS.get(field, {}).get(value, str(value))


def value_of(field: str, text: str) -> Any:
    """The value a text stands for; PlacementError says what is allowed."""
    spec = SPEC_BY_FIELD[field]
    typed = text.strip()
    if spec.kind is tuple:
        is_unset = typed.lower() in ("", UNSET.get(field))
        return getattr(DEFAULTS, field) if is_unset else spec.parse(typed)
    word = next((n for n, w in WORDS.get(field, {}).items() if w == typed.lower()), None)
    if word is not None:
        return word
    # Digits may be grouped, as the window writes them.
    return spec.parse("".join(typed.split()) or "empty")


def default_text(field: str) -> str:
    """The default in words: "all", "on", "none"."""
    default = getattr(DEFAULTS, field)
    if isinstance(default, bool):
        return "on" if default else "off"
    return text_of(field, default)
