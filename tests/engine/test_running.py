"""What a model is asked that it cannot do is said before anything is loaded."""

import pytest

from engine.errors import ModelError
from engine.running import check_embeds, check_writes
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import ENCODER


@pytest.fixture
def planner(tmp_path):
    """Return a function that plans a made model."""

    def make(arch, numbers=None, **options):
        numbers = ENCODER if "bert" in arch else numbers or {}
        with made_header(tmp_path, arch, **numbers) as file:
            return planner_of(file, **options)

    return make


def test_an_encoder_writes_no_text(planner):
    with pytest.raises(ModelError, match=r"gives embeddings\. It writes no text") as caught:
        check_writes(3, planner("bert"))

    assert caught.value.hint == "See: python -m engine embed --help"


def test_a_model_that_writes_gives_no_embeddings(planner):
    with pytest.raises(ModelError, match=r"gives no embeddings\. It writes text") as caught:
        check_embeds(3, planner("llama"))

    assert caught.value.sentence.startswith("llama.pooling_type is missing, so ")
    assert "--pooling last" in caught.value.hint


def test_a_model_that_writes_gives_embeddings_where_its_file_or_a_person_says_how(planner):
    for options, numbers, reason in (
        ({"pooling": "mean"}, {}, "--pooling mean asks for embeddings."),
        ({}, {"pooling_type": 3}, "qwen3.pooling_type is 3: it was made for embeddings."),
    ):
        made = planner("qwen3", numbers, **options)
        check_embeds(512, made)
        with pytest.raises(ModelError, match=r"gives embeddings\. It writes no text") as caught:
            check_writes(3, made)
        assert caught.value.sentence == reason


def test_a_file_that_leaves_embeddings_as_they_are_writes_text(planner):
    made = planner("qwen3", {"pooling_type": 0})

    check_writes(3, made)
    with pytest.raises(ModelError, match=r"pooling_type is 0 \(none\)"):
        check_embeds(3, made)


def test_what_each_can_do_is_let_through(planner):
    check_writes(512, planner("llama"))
    check_embeds(512, planner("bert"))


def test_a_prompt_must_fit_the_context(planner):
    with pytest.raises(ModelError, match="too long: 513 tokens"):
        check_writes(513, planner("llama"))


def test_a_text_must_fit_one_graph(planner):
    with pytest.raises(ModelError, match="too long: 65 tokens") as caught:
        check_embeds(65, planner("nomic-bert", n_ubatch=64))

    assert caught.value.sentence.endswith("a graph takes 64 tokens.")


def test_a_text_must_fit_the_positions_that_have_embeddings(planner):
    long = {"n_ctx": 4096, "n_ubatch": 4096, "n_batch": 4096}

    with pytest.raises(ModelError, match="too long: 3,000 tokens") as caught:
        check_embeds(3000, planner("bert", **long))
    check_embeds(3000, planner("nomic-bert", **long))

    assert caught.value.sentence == "The model knows 2,048 positions."
