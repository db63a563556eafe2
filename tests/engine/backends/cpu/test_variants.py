"""Kernels compiled for processors other than this one, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends.cpu.features import Variant, llvm_features, variant

TESTS = [
    str(Path(__file__).with_name(name))
    for name in ("test_kernels.py", "test_types.py", "test_experts.py")
]

PROCESSORS = {
    Variant.AVX_VNNI: ("alderlake", "avx avx2 fma f16c ssse3 sse4.2 avxvnni"),
    Variant.AVX2: ("haswell", "avx avx2 fma f16c ssse3 sse4.2"),
    Variant.GENERIC: ("generic", "sse2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("wanted", PROCESSORS)
def test_products_and_halfs_agree_with_the_reference_on_lesser_processors(wanted):
    """Runs the tests of MUL_MAT and of f16 with the variant forced; NaN must pass there too."""
    name, features = PROCESSORS[wanted]
    missing = set(features.split()) - llvm_features()
    if missing:
        pytest.skip(f"this CPU lacks {', '.join(sorted(missing))}")
    forced = ",".join(f"+{feature}" for feature in features.split())
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": forced}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]

    done = subprocess.run(
        [*command, "-k", "(mul_mat or half or product) and not plain"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("wanted", PROCESSORS)
def test_the_variant_follows_from_the_features(monkeypatch, wanted):
    forced = ",".join(f"+{feature}" for feature in PROCESSORS[wanted][1].split())
    monkeypatch.setenv("NUMBA_CPU_FEATURES", forced)
    llvm_features.cache_clear()
    try:
        assert variant() is wanted
    finally:
        llvm_features.cache_clear()
