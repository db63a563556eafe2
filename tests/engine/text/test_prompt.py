import pytest

from engine.text.prompt import read_prompt, text_faults
from engine.text.tokenizer import Tokenizer
from tests.engine.text.test_vocabularies import CUT

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }} world{% endfor %}"


@pytest.fixture
def metadata():
    """Give the keys of a vocabulary that begins texts with a token."""
    return dict(CUT["llama-bpe"]["metadata"])


def read(metadata, text, *, chat):
    tokenizer = Tokenizer.from_metadata(metadata)
    prompt = read_prompt(metadata, tokenizer, text, chat=chat)
    return tokenizer.decode(prompt.tokens), prompt.notes


def test_a_raw_prompt_is_the_text_with_the_vocabulary_s_first_token(metadata):
    assert read(metadata, "Hello", chat=False) == ("<|begin_of_text|>Hello", ())


def test_a_chat_prompt_is_what_the_template_makes_of_it(metadata):
    metadata["tokenizer.chat_template"] = TEMPLATE

    assert read(metadata, "Hello", chat=True) == ("<|begin_of_text|>Hello world", ())
    assert text_faults(metadata) == ()


@pytest.mark.parametrize("template", [None, "", " \n ", 9])
def test_a_chat_prompt_without_a_template_is_raw_and_a_note_says_so(metadata, template):
    if template is not None:
        metadata["tokenizer.chat_template"] = template

    text, (note,) = read(metadata, "Hello", chat=True)

    assert text == "<|begin_of_text|>Hello"
    assert note == (
        "This model has no chat template. It continues text only. "
        "The prompt is used as plain text instead."
    )
    assert text_faults(metadata) == ()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a\n {{ nothing.x }}", "Line 2, column 5: 'nothing' is undefined."),
        ("{% for %}", "Line 1, column 8: Expected an expression, got 'end of statement block'."),
        ("{{ raise_exception('No users') }}", "It says: No users. The prompt is"),
        ("{{ '' }}", "It makes nothing of a message."),
        ("{% for i in range(99999999) %}{% endfor %}", "it builds a value that is too large."),
    ],
)
def test_a_template_that_fails_is_left_out_and_named(metadata, template, said):
    metadata["tokenizer.chat_template"] = template

    text, (note,) = read(metadata, "Hello", chat=True)

    assert text == "<|begin_of_text|>Hello"
    assert said in note
    assert note.endswith("The prompt is used as plain text instead.")
    assert text_faults(metadata) == (note,)
    assert read(metadata, "Hello", chat=False)[1] == ()


def test_notes_name_the_tokenizer_too(metadata):
    metadata |= {"tokenizer.ggml.pre": "unheard-of", "tokenizer.chat_template": "{{ nothing.x }}"}

    tokenizer, template = text_faults(metadata)

    assert "unheard-of" in tokenizer
    assert "'nothing' is undefined" in template
