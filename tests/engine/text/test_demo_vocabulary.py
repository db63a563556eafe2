import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.bpe import bytes_to_chars
from engine.text.chat_template import ChatMessage, render_chat, template_of

pytestmark = pytest.mark.demo


@pytest.fixture(scope="module")
def missing_bytes(demo_metadata):
    """Give the bytes that SmolLM2 has no token for; characters with one of them are lost."""
    tokens = set(demo_metadata["tokenizer.ggml.tokens"])
    return {byte for byte in range(256) if bytes_to_chars(bytes((byte,))) not in tokens}


@given(text=st.text())
def test_text_comes_back_from_its_ids(demo_tokenizer, missing_bytes, text):
    kept = "".join(char for char in text if missing_bytes.isdisjoint(char.encode()))

    ids = demo_tokenizer.encode(kept, add_special=True, parse_special=False)

    assert demo_tokenizer.decode(ids) == kept


def test_end_tokens_are_those_llama_cpp_logs(demo_tokenizer):
    assert demo_tokenizer.end_ids == {0, 2, 4}
    assert demo_tokenizer.n_vocab == 49152


def test_a_chat_prompt_is_control_tokens_around_the_messages(demo_metadata, demo_tokenizer):
    prompt = render_chat(
        template_of(demo_metadata), [ChatMessage("user", "Hi")], add_generation_prompt=True
    )

    ids = demo_tokenizer.encode(prompt, add_special=False, parse_special=True)

    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert [ids.count(token) for token in (0, 1, 2)] == [0, 3, 2]
