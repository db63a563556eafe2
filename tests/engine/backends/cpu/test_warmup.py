"""What is compiled before a run: all that its nodes need, and nothing that they do not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine import paths
from engine.backends.cpu.jit import Kernel
from engine.backends.cpu.reg import create
from engine.backends.cpu.warmup import needed_kernels
from engine.core import build
from engine.core.ops import FlashAttnParams, Op, RopeParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.backends.cpu.cpu_split import random

if TYPE_CHECKING:
    from collections.abc import Callable

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64


def needed(*nodes: Tensor) -> set[str]:
    return set(needed_kernels(nodes, create().devices()[0].facts.rules.supports_op))


def product(weight_type: TensorType, n_columns: int) -> Tensor:
    return build.mul_mat(leaf(weight_type, 256, 16), leaf(F32, 256, n_columns))


def leaf(tensor_type: TensorType, *ne: int) -> Tensor:
    return Tensor(tensor_type, shape4(*ne))


def test_nodes_that_are_alike_in_every_layer_ask_for_one_kernel():
    layers = [build.rms_norm(leaf(F32, 64, 2), 1e-5) for _ in range(30)]

    assert needed(*layers) == {"rms_norm"}


def test_a_product_brings_the_pieces_of_its_type():
    assert needed(product(TensorType.Q4_1, 1)) == {
        *("quantize", "mul_mat", "quant_product", "q4_1_dot"),
    }


def test_a_panel_is_needed_where_any_product_has_enough_columns():
    token, prompt = product(TensorType.Q4_0, 1), product(TensorType.Q4_0, 64)

    assert "q4_0_unpack" not in needed(token)
    assert {"q4_0_dot", "q4_0_unpack"} <= needed(token, prompt)


def test_what_the_cpu_cannot_compute_asks_for_nothing():
    x = leaf(F32, 8, 2)

    assert needed_kernels([build.scale(x, 2.0)], lambda _: False) == {}


def test_views_ask_for_nothing():
    x = leaf(F32, 8, 2)

    assert needed(build.reshape(x, 16)) == set()


@pytest.mark.parametrize("cache_type", [F16, TensorType.Q8_0])
def test_an_attention_over_a_cache_brings_the_conversions_of_the_cache(cache_type: TensorType):
    q, mask = leaf(F32, 32, 4, 2), leaf(F16, 8, 4)
    k, v = leaf(cache_type, 32, 8, 2), leaf(cache_type, 32, 8, 2)

    names = needed(build.flash_attn_ext(q, k, v, mask, FlashAttnParams()))

    label = cache_type.label
    assert {"flash_attn", f"{label}_dot", f"{label}_to_f32"} <= names


def test_a_split_asks_for_no_kernel_that_was_not_prepared(backend, split, monkeypatch):
    x, weight = (
        split.leaf(random((1, 1, 9, 64))),
        split.leaf(random((1, 1, 12, 64)), TensorType.Q8_0),
    )
    positions = split.leaf(np.arange(9), I32)
    nodes = [build.mul_mat(weight, build.rms_norm(x, 1e-5))]
    heads = build.reshape(x, 64, 1, 9)
    nodes += [build.rope(heads, positions, None, RopeParams(n_dims=64)), build.binary(Op.ADD, x, x)]
    nodes.insert(0, nodes[0].src[1])
    backend.prepare_for(nodes)
    asked: list[str] = []

    monkeypatch.setattr(Kernel, "address", recording(Kernel.address, asked))
    backend.graph_compute(split.graph(*nodes))

    assert asked
    assert set(asked) <= set(needed(*nodes))


def recording(address: Callable[[Kernel], int], asked: list[str]) -> Callable[[Kernel], int]:
    def recorded(kernel: Kernel) -> int:
        asked.append(kernel.name)
        return address(kernel)

    return recorded


def test_prepare_for_tells_each_kernel_and_the_interpreter(backend):
    steps: list[tuple[int, int, str]] = []

    backend.prepare_for(
        [build.rms_norm(leaf(F32, 64, 2), 1e-5)],
        lambda done, total, name: steps.append((done, total, name)),
    )

    assert steps == [(0, 2, "rms_norm"), (1, 2, "interpreter"), (2, 2, "")]


LOADED = """
    import sys
    from engine.backends.cpu.backend import CpuBackend
    from engine.backends.cpu.reg import create
    from engine.core import build
    from engine.core.tensor import Tensor, shape4
    from engine.core.types import TensorType

    backend = CpuBackend(create().devices()[0], 2)
    x = Tensor(TensorType.F32, shape4(64, 2))
    backend.prepare_for([build.rms_norm(x, 1e-5)])
    print("numba.np.linalg" in sys.modules)
"""


def test_what_is_compiled_already_is_loaded_without_what_compiles(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(LOADED)]

    compiled_for_it = [
        subprocess.run(
            command, cwd=paths.repository_dir(), env=environment, capture_output=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]

    assert compiled_for_it == [b"True", b"False"]
