"""A prompt as tokens: raw text, or one chat message wrapped by the model's own template.

Without a template, or with one that fails, the prompt is plain text, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import TextError
from engine.text.chat_template import ChatMessage, has_template, render_chat, template_of
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens, and `notes`: what of tokenizer and template is amiss and what was used instead."""

    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()


def read_prompt(
    metadata: Mapping[str, object], tokenizer: Tokenizer, text: str, *, chat: bool
) -> Prompt:
    """The tokens of `text`; with `chat` as a message, where the model has a template for it."""
    notes = tokenizer.faults
    if chat:
        try:
            wrapped = _wrapped(metadata, tokenizer, text)
        except TextError as error:
            notes = (*notes, _template_note(error))
        else:
            ids = tokenizer.encode(wrapped, add_special=False, parse_special=True)
            return Prompt(tuple(ids), notes)
    return Prompt(tuple(tokenizer.encode(text, add_special=True, parse_special=True)), notes)


def text_faults(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """What of a file's tokenizer and chat template is wrong, and what is used instead."""
    tokenizer = Tokenizer.from_metadata(metadata)
    if not has_template(metadata):
        return tokenizer.faults
    try:
        _wrapped(metadata, tokenizer, "Hello")
    except TextError as error:
        return (*tokenizer.faults, _template_note(error))
    return tokenizer.faults


def _wrapped(metadata: Mapping[str, object], tokenizer: Tokenizer, text: str) -> str:
    def text_of(token: int | None) -> str:
        return "" if token is None else tokenizer.token_text(token)

    wrapped = render_chat(
        template_of(metadata),
        [ChatMessage("user", text)],
        add_generation_prompt=True,
        bos_token=text_of(tokenizer.bos_id),
        eos_token=text_of(tokenizer.eos_id),
    )
    if not wrapped.strip():
        raise TextError("The model's chat template is broken.", "It makes nothing of a message.")
    return wrapped


def _template_note(error: TextError) -> str:
    return f"{error.title} {error.sentence} The prompt is used as plain text instead."
