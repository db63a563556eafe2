"""Where things lie: resources of the program, folders of the user, golden data of developers.

Imports neither numpy nor numba: `configure_environment` must run before either is imported.
Folders are named, not made; whoever writes into one makes it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

APP_NAME = "splitscope"

ORACLE_VARIABLE = "SPLITSCOPE_ORACLE"

BLAS_THREAD_TIMEOUT = "4"
"""log2 of the cycles OpenBLAS workers spin; its default lets them spin beside our own threads."""


def configure_environment() -> None:
    """Set what numba and OpenBLAS read once, when they are loaded; what a person set stays."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_dir() / "numba"))
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", BLAS_THREAD_TIMEOUT)


def resources_dir() -> Path:
    """Icons, manual and manifests: inside a bundle where it was unpacked, else in the checkout."""
    bundle = bundle_dir()
    return (repository_dir() if bundle is None else bundle) / "resources"


def cache_dir() -> Path:
    """What can be made again: compiled kernels, fetched models."""
    return platformdirs.user_cache_path(APP_NAME, appauthor=False)


def compiled_dir() -> Path:
    """Compiled kernels, and which drivers passed their trial; where NUMBA_CACHE_DIR says."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_dir() / "numba")


def settings_dir() -> Path:
    """What a person chose."""
    return platformdirs.user_config_path(APP_NAME, appauthor=False)


def settings_file() -> Path:
    """The file of what a person chose; the window writes it."""
    return settings_dir() / "settings.ini"


def backends_dir() -> Path:
    """Where a person puts backends of their own."""
    return platformdirs.user_data_path(APP_NAME, appauthor=False) / "backends"


def program_dir() -> Path:
    """Where the program lies: a bundle's executable, else the checkout."""
    return repository_dir() if bundle_dir() is None else Path(sys.executable).parent


def models_dir() -> Path:
    """Models that were fetched."""
    return cache_dir() / "models"


def oracle_dir() -> Path | None:
    """Golden data from real llama.cpp; None where this machine has none.

    Looked for in $SPLITSCOPE_ORACLE and nowhere else when that is set, then in shared/oracle and
    ../shared/oracle of the checkout.
    """
    named = os.environ.get(ORACLE_VARIABLE)
    root = repository_dir()
    beside = [root / "shared" / "oracle", root.parent / "shared" / "oracle"]
    places = [Path(named)] if named else beside
    return next((place for place in places if place.is_dir()), None)


def repository_dir() -> Path:
    """The folder that holds `engine`."""
    return Path(__file__).resolve().parent.parent


def bundle_dir() -> Path | None:
    """Where PyInstaller unpacked a bundle; None in a checkout."""
    unpacked: str | None = getattr(sys, "_MEIPASS", None)
    return None if unpacked is None else Path(unpacked)
