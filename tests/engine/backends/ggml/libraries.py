"""Real ggml libraries for tests: from SPLITSCOPE_GGML, else fetched once into the user's cache."""

import hashlib
import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from engine import paths
from engine.backends.ggml.library import open_library
from tests.bench.peer_download import VARIANTS, fetched
from tests.bench.wire import ChildError

FOLDER_VARIABLE = "SPLITSCOPE_GGML"
BASE = "libggml-base.so"
BASE_SHA256 = "1eba024559799447e34687e12b6794e79ad3768a1b3d2cbca9fadc829f0f85c7"
RPC_VARIABLE = "SPLITSCOPE_GGML_RPC"
PREFERRED = ("icelake", "haswell", "x64")
"""Variants without AMX, whose tiles take other sums: results stay near the recordings."""
PEERS = paths.cache_dir() / "peers"
"""In the user's own cache, as it is before a test has folders of its own."""


@cache
def ggml_folder() -> Path:
    """A folder with libggml-base.so and libggml-cpu-*.so; skips where there is none."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    try:
        folder = fetched(VARIANTS, PEERS, lambda words: None)
    except ChildError as error:
        pytest.skip(f"real ggml libraries cannot be fetched: {error}")
    found = hashlib.sha256((folder / BASE).read_bytes()).hexdigest()
    assert found == BASE_SHA256, f"{folder / BASE} is not the file that is known"
    return folder


@cache
def cpu_library() -> Path:
    """The first preferred CPU variant that runs here; skips where none does."""
    folder = ggml_folder()
    for variant in PREFERRED:
        path = folder / f"libggml-cpu-{variant}.so"
        if path.is_file() and open_library(path).score():
            return path
    pytest.skip(f"no CPU library of {folder} runs here")


def rpc_folder() -> Path:
    """A folder with libggml-rpc, libggml-cpu and their base; skips where none is named."""
    named = os.environ.get(RPC_VARIABLE)
    if not named:
        pytest.skip(f"no libraries with libggml-rpc are named ({RPC_VARIABLE})")
    return Path(named)


def copy_of(path: Path, folder: Path) -> Path:
    """The library and its base in another folder."""
    shutil.copy(path.parent / BASE, folder)
    return Path(shutil.copy(path, folder))
