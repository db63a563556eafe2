"""Machine code on disk: what processes kept one by one is loaded side by side."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from numba.core import caching

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.jit import Kernel
from engine.backends.cpu.reg import create
from engine.core import build
from engine.core.types import TensorType as T
from tests.engine.backends.cpu import ggml_order
from tests.engine.backends.cpu.cpu_split import CpuSplit, random

KINDS = (T.Q8_0, T.Q4_K)


def call_address(address: int, n: int) -> int:
    """What the machine code at an address gives for a number."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(n))


def products_are_right(*kinds: T) -> bool:
    """Whether products with these types are as they should be, all in one process."""
    split, backend = CpuSplit(), CpuBackend(create().devices()[0], 1)
    values = random((1, 1, 2, 512), 2)
    weights = [split.random_blocks(kind, 512, 20) for kind in kinds]
    nodes = [build.mul_mat(weight, split.leaf(values)) for weight in weights]
    split.compute(backend, *nodes)
    backend.dispose()
    return all(
        np.array_equal(
            split.read(node)[0, 0, 0],
            ggml_order.product(weight.type, split.raw(weight), values[0, 0, 0]),
        )
        for node, weight in zip(nodes, weights, strict=True)
    )


@pytest.mark.slow
def test_kernels_that_processes_compiled_apart_are_not_mixed_up(tmp_path):
    """Functions of equal names, one compiled in each process, are one function when both load."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    names = (
        "from engine.backends.cpu.kernels.traits import TRAITS; "
        "from tests.engine.backends.cpu.test_kept_code import KINDS, T, products_are_right; "
    )

    def answer(code: str) -> str:
        command = [sys.executable, "-c", names + code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    for kind in KINDS:
        answer(f"TRAITS[T.{kind.name}].dot.address()")

    assert answer("print(products_are_right(*KINDS))") == "True"
    assert answer("print(products_are_right(*reversed(KINDS)))") == "True"


@pytest.mark.parametrize("what", ["save", "load"])
def test_code_that_cannot_be_kept_or_read_is_compiled_all_the_same(what, monkeypatch):
    def refuse(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    def twice(n: int) -> int:
        return 2 * n

    monkeypatch.setattr(caching.IndexDataCacheFile, what, refuse)

    assert call_address(Kernel(twice).address(), 21) == 42
