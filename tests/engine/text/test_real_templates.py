"""The chat templates that llama.cpp's repository keeps, against plain jinja2."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import TextError
from engine.text.chat_template import ChatMessage, render_chat
from engine.text.template_limits import GenerationBlocks
from tests.engine.text.test_vocabularies import VOCABS_VARIABLE

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
TOOL = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time.",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}
CHATS = (
    (("user", "Hi"),),
    (("system", "Be brief."), ("user", "Hi é"), ("assistant", "Yes?"), ("user", "Go")),
)
LEFT_OUT = ("tool_use", "firefunction", "llama-cpp-deepseek-r1")
"""These need tools where there are none, variables that no chat has, or JSON of a generator."""


def templates() -> list[Path]:
    """Return the templates in the folder of vocabularies."""
    folder = Path(os.environ.get(VOCABS_VARIABLE, "nowhere")) / "templates"
    found = sorted(folder.glob("*.jinja"))
    if not found:
        pytest.skip(f"the vocabulary files are not here ({VOCABS_VARIABLE})")
    return found


def plain(source, messages, tools):
    """Render as a library that only jinja2 limits would."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationBlocks],
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, **options: json.dumps(
        value, ensure_ascii=ensure_ascii, **options
    )
    return environment.from_string(source).render(
        messages=[{"role": role, "content": content} for role, content in messages],
        tools=tools,
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
        documents=None,
        strftime_now=NOW.strftime,
    )


def ours(source, messages, tools):
    """Render as a run does, or return what a person is told."""
    try:
        return render_chat(
            source,
            [ChatMessage(role, content) for role, content in messages],
            tools=tools,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
            now=NOW,
        )
    except TextError as error:
        return error.title


@pytest.mark.big_set
@pytest.mark.slow
def test_templates_of_real_models_render_as_plain_jinja_does():
    for path in templates():
        if any(name in path.name for name in LEFT_OUT):
            continue
        source = path.read_text("utf-8")
        for tools, chat in (([TOOL], CHATS[0]), (None, CHATS[1])):
            rendered = ours(source, chat, tools)

            refuses = rendered.endswith("does not take these messages.")
            assert refuses or rendered == plain(source, chat, tools), path.name
