"""Messages to one prompt, by the template that came with the model."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from engine.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.text.template_limits import LimitedEnvironment, TemplateLimits

TEMPLATE_KEY = "tokenizer.chat_template"

_HINT = "Send the prompt as plain text, without the chat template."


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; `role` is "system", "user" or "assistant" for most templates."""

    role: str
    content: str


def has_template(metadata: Mapping[str, object]) -> bool:
    """Whether a GGUF file's keys hold a chat template; a blank one would drop every message."""
    template = metadata.get(TEMPLATE_KEY)
    return isinstance(template, str) and bool(template.strip())


def template_of(metadata: Mapping[str, object]) -> str:
    """The chat template in a GGUF file's keys.

    Raises:
        TextError: there is none.
    """
    if not has_template(metadata):
        raise TextError("This model has no chat template.", "It continues text only.", _HINT)
    return str(metadata[TEMPLATE_KEY])


def render_chat(
    template: str,
    messages: Sequence[ChatMessage],
    *,
    add_generation_prompt: bool,
    bos_token: str = "",
    eos_token: str = "",
    tools: Sequence[Mapping[str, object]] | None = None,
    now: dt.datetime | None = None,
    limits: TemplateLimits | None = None,
) -> str:
    """The prompt for `messages`; tokenize it with parse_special and without add_special.

    `bos_token` and `eos_token` are token texts. `now` is what the template takes for the time
    (optional, the clock's). What a template may do is said in `template_limits`.

    Raises:
        TextError: the template is broken (with its row and column), refuses the messages or does
            too much.
    """
    # jinja2 takes a moment to import, and most prompts are plain text.
    from engine.text import template_limits as limited

    moment = dt.datetime.now().astimezone() if now is None else now
    environment = limited.LimitedEnvironment(limits or limited.TemplateLimits())
    try:
        return environment.from_string(template).render(
            messages=[{"role": message.role, "content": message.content} for message in messages],
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
            tools=None if tools is None else [dict(tool) for tool in tools],
            documents=None,
            raise_exception=_refuse,
            strftime_now=lambda form: moment.strftime(str(form)[:100]),
        )
    except _RefusalError as error:
        raise _text_error("does not take these messages", f"It says: {error}.") from error
    except limited.OverLimitError as error:
        said = f"{_place(environment, error)}: {error}."
        raise _text_error("was stopped", said) from error
    except limited.TEMPLATE_FAULTS as error:
        said = f"{_place(environment, error)}: {_reason(error)}."
        raise _text_error("is broken", said) from error


def _text_error(what: str, sentence: str) -> TextError:
    return TextError(f"The model's chat template {what}.", sentence, _HINT)


class _RefusalError(Exception):
    """What `raise_exception` in a template raises."""


def _refuse(message: object) -> NoReturn:
    raise _RefusalError(str(message)[:1000].rstrip("."))


def _place(environment: LimitedEnvironment, error: BaseException) -> str:
    place = environment.tracker.fault_place(error)
    return "The template" if place is None else f"Line {place}, column {place.column}"


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    return (str(error) or type(error).__name__).rstrip(".")
