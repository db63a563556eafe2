"""What BLAS takes: with all what ggml's takes, with auto what it is faster at."""

import pytest

from engine.backends.blas.rules import BlasRules
from engine.backends.null import presets
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.options import BlasUse
from engine.core.quants import READABLE
from engine.core.repack import CPU_REPACK
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType as T

AUTO, ALL = BlasRules(BlasUse.AUTO), BlasRules(BlasUse.ALL)
ON_PAPER = presets.blas("BLAS", 0).rules


def product(kind, columns, inner=256, rows=256):
    return build.mul_mat(Tensor(kind, shape4(inner, rows)), Tensor(T.F32, shape4(inner, columns)))


@pytest.mark.parametrize(
    ("kind", "columns", "is_faster"),
    [
        (T.F32, 255, False),
        (T.F32, 256, True),
        (T.F16, 511, False),
        (T.F16, 512, True),
        (T.BF16, 511, False),
        (T.BF16, 512, True),
        (T.Q8_0, 2048, False),
        (T.Q4_K, 2048, False),
    ],
)
def test_auto_takes_what_is_faster_here(kind, columns, is_faster):
    assert AUTO.supports_op(product(kind, columns)) is is_faster


def test_auto_takes_nothing_that_ggml_would_not():
    narrow = product(T.F32, 512, rows=31)

    assert not AUTO.supports_op(narrow)
    assert not ALL.supports_op(narrow)


@pytest.mark.parametrize("kind", sorted(T), ids=lambda kind: kind.label)
@pytest.mark.parametrize("columns", [1, 31, 32, 512])
def test_all_takes_what_ggml_takes_of_every_type(kind, columns):
    node = product(kind, columns)

    assert ALL.supports_op(node) is (columns >= 32 and kind in READABLE)
    assert ALL.supports_op(node) is ON_PAPER.supports_op(node)


@pytest.mark.parametrize("rules", [AUTO, ALL], ids=["auto", "all"])
def test_views_are_taken_and_other_operations_never(rules):
    x = Tensor(T.F32, shape4(64, 64))

    assert rules.supports_op(x)
    assert rules.supports_op(build.reshape(x, 4096))
    assert not rules.supports_op(build.add(x, x))


@pytest.mark.parametrize("rules", [AUTO, ALL], ids=["auto", "all"])
def test_it_reads_host_memory_and_wants_nothing_from_elsewhere(rules):
    assert rules.supports_buft(BufferTypeFacts("CUDA_Host", is_host=True))
    assert not rules.supports_buft(BufferTypeFacts("OpenCL0"))
    assert not rules.supports_buft(CPU_REPACK)
    assert not rules.offload_op(product(T.F32, 512))
