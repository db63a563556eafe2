"""The demo model's whole vocabulary."""

import os
from pathlib import Path

import pytest

from engine.gguf.reader import open_gguf
from engine.text.tokenizer import Tokenizer

DEMO_VARIABLE = "SPLITSCOPE_DEMO_MODEL"


@pytest.fixture(scope="session")
def demo_metadata(request):
    """Give the demo model's metadata, from $SPLITSCOPE_DEMO_MODEL where that is set."""
    named = os.environ.get(DEMO_VARIABLE)
    path = Path(named) if named else request.getfixturevalue("demo_model")
    with open_gguf(path) as file:
        return dict(file.metadata)


@pytest.fixture(scope="session")
def demo_tokenizer(demo_metadata):
    """Give the tokenizer of the demo model (SmolLM2)."""
    return Tokenizer.from_metadata(demo_metadata)
