"""Vocabularies of real models against what llama.cpp made of them."""

import ast
import datetime as dt
import json
import re

import pytest

from engine.errors import TextError
from engine.gguf.reader import open_gguf
from engine.text.chat_template import ChatMessage, has_template, render_chat, template_of
from engine.text.tokenizer import Tokenizer
from tests.oracle import golden

pytestmark = pytest.mark.big_set

# Recorded texts -> a model whose header has that vocabulary.
HEADERS = {
    "gemma-3": "gemma-3-270m-q4_k_m",
    "qwen2": "qwen2.5-0.5b",
    "llama-spm": "tiny-llama-f32",
}
# Models of the recorded runs -> their header, where it has another name.
VARIANTS = {
    "gemma-f32": "gemma-3-270m-q4_k_m",
    "qwen2.5-0.5b-f32": "qwen2.5-0.5b",
    "smollm2-f32": "smollm2-135m-q4_1",
    "tiny-qwen3moe-q8_0": "tiny-qwen3moe-f32",
}
MODELS = (
    *("gemma-3-270m-q4_k_m", "nano-llama-f32", "qwen2.5-0.5b", "smollm2-135m-q4_1"),
    *("smollm2-moe4x2", "tiny-llama-f32", "tiny-qwen3moe-f32"),
)


@pytest.fixture(scope="module")
def metadata_of():
    """Give a model's metadata by its name; each header is read once."""
    read = {}

    def metadata(model):
        if model not in read:
            with open_gguf(golden.header(model)) as file:
                read[model] = dict(file.metadata)
        return read[model]

    return metadata


@pytest.fixture(scope="module")
def tokenizer_of(metadata_of):
    """Give a model's tokenizer by its name; each is made once."""
    made = {}

    def tokenizer(model):
        if model not in made:
            made[model] = Tokenizer.from_metadata(metadata_of(model))
        return made[model]

    return tokenizer


def recorded_texts(vocabulary):
    """(text, ids) of each line that has ids: the empty text could not be recorded."""
    for line in golden.path(f"tokenize/{vocabulary}.tsv").read_text("utf-8").splitlines():
        text, _, ids = line.partition("\t")
        if ids:
            yield json.loads(text), json.loads(ids)


@pytest.mark.parametrize(("vocabulary", "model"), HEADERS.items(), ids=HEADERS)
def test_texts_become_the_recorded_ids(tokenizer_of, vocabulary, model):
    tokenizer = tokenizer_of(model)
    recorded = list(recorded_texts(vocabulary))

    ours = [
        (text, tokenizer.encode(text, add_special=True, parse_special=True)) for text, _ in recorded
    ]

    assert ours == recorded
    assert len(recorded) == 8


def test_prompts_become_the_recorded_ids_and_ids_the_recorded_texts(tokenizer_of):
    for model, prompts in golden.tokens().items():
        tokenizer = tokenizer_of(VARIANTS.get(model, model))
        for prompt, run in prompts.items():
            ids = tokenizer.encode(run["prompt"], add_special=True, parse_special=True)
            stream = tokenizer.stream()

            assert ids == run["prompt_tokens"], (model, prompt)
            assert tokenizer.decode(run["greedy"]) == run["text"], (model, prompt)
            streamed = "".join(map(stream.push, run["greedy"])) + stream.finish()
            assert streamed == run["text"], (model, prompt)


@pytest.mark.parametrize("model", MODELS)
def test_special_tokens_are_those_llama_cpp_logged(tokenizer_of, model):
    tokenizer = tokenizer_of(model)
    log = golden.placement(model, golden.placements(model)[0]).log

    ends = re.findall(r"^load: +- (\d+) \('", log, re.MULTILINE)
    n_special = re.search(r"special tokens cache size = (\d+)", log)
    begins = re.search(r"^n_ctx: \d+, add_bos: (\d)", log, re.MULTILINE)

    assert tokenizer.end_ids == {int(token) for token in ends}
    assert len(tokenizer._vocab.special_ids) == int(n_special[1])
    added = tokenizer.encode("", add_special=True, parse_special=True)
    assert added == ([tokenizer.bos_id] if begins[1] == "1" else [])


def test_qwen_renders_messages_as_its_template_says(metadata_of, tokenizer_of):
    tokenizer = tokenizer_of("qwen2.5-0.5b")
    messages = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Yes?"),
        ChatMessage("user", ""),
    ]

    prompt = render_chat(
        template_of(metadata_of("qwen2.5-0.5b")), messages, add_generation_prompt=True
    )
    ids = tokenizer.encode(prompt, add_special=False, parse_special=True)

    assert prompt == (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [ids.count(token) for token in (151644, 151645)] == [5, 4]


def test_qwen_names_tools_in_its_system_message(metadata_of):
    tool = {"type": "function", "function": {"name": "clock", "parameters": {}}}

    prompt = render_chat(
        template_of(metadata_of("qwen2.5-0.5b")),
        [ChatMessage("system", "Be brief."), ChatMessage("user", "What time is it?")],
        add_generation_prompt=True,
        tools=[tool],
    )

    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    listed = prompt.partition("<tools>\n")[2].partition("\n</tools>")[0]
    assert ast.literal_eval(listed) == tool


def test_deepseek_renders_messages_around_its_own_marks(metadata_of, tokenizer_of):
    model = "deepseek-r1-distill-qwen-7b-q4_k_m"
    tokenizer = tokenizer_of(model)

    prompt = render_chat(
        template_of(metadata_of(model)),
        [
            ChatMessage("system", "S"),
            ChatMessage("user", "U"),
            ChatMessage("assistant", "x</think>A"),
        ],
        add_generation_prompt=True,
        bos_token=tokenizer.token_text(tokenizer.bos_id),
        now=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    )

    bos, user, assistant, end = (
        tokenizer.token_text(token) for token in (151646, 151644, 151645, 151643)
    )
    assert prompt == f"{bos}S{user}U{assistant}A{end}{assistant}"


def test_gemma_has_no_template_and_says_so(metadata_of):
    metadata = metadata_of("gemma-3-270m-q4_k_m")

    assert not has_template(metadata)
    with pytest.raises(TextError, match="has no chat template"):
        template_of(metadata)
