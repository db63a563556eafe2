"""What CPUs and accelerators on paper compute, beyond their tables (SCHED.md 4)."""

import pytest

from engine.backends.null import presets
from engine.core import build
from engine.core.devices import BufferFacts, BufferTypeFacts, DeviceType, RowShares
from engine.core.ops import Op
from engine.core.repack import CPU_REPACK
from engine.core.rows import split_memory
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.paper import parse_virtual

CPU = presets.cpu("CPU", 1)
BLAS = presets.blas("BLAS", 0)
F32 = TensorType.F32


def product(inner=64, rows=64, columns=64, *, kind=F32, x_kind=F32, home=None):
    weight = Tensor(kind, (inner, rows, 1, 1), buffer=home)
    return build.mul_mat(weight, Tensor(x_kind, (inner, columns, 1, 1)))


def transposed_product():
    weight = build.transpose(Tensor(F32, (64, 64, 1, 1)))
    return build.mul_mat(weight, Tensor(F32, (64, 64, 1, 1)))


def one_head_product():
    """Keys of one head: its dimension of 1 may have any stride."""
    keys = build.permute(build.view(Tensor(F32, (64, 64, 1, 1)), (64, 1, 64)), (0, 2, 1, 3))
    return build.mul_mat(keys, Tensor(F32, (64, 64, 1, 1)))


def many_heads_product():
    keys = build.permute(build.view(Tensor(F32, (128, 64, 1, 1)), (64, 2, 64)), (0, 2, 1, 3))
    return build.mul_mat(keys, Tensor(F32, (64, 64, 2, 1)))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (product(), True),
        (product(kind=TensorType.Q4_1), True),
        (product(kind=TensorType.F16), True),
        (product(inner=32, rows=32, columns=32), True),
        (product(columns=31), False),
        (product(rows=31), False),
        (product(inner=31), False),
        (product(x_kind=TensorType.F16), False),
        (product(kind=TensorType.I32), False),
        (transposed_product(), False),
        (one_head_product(), True),
        (many_heads_product(), False),
        (build.add(Tensor(F32, shape4(64, 64)), Tensor(F32, shape4(64, 64))), False),
        (build.reshape(Tensor(F32, shape4(64, 64)), 4096), True),
        (Tensor(F32, shape4(64)), True),
    ],
)
def test_blas_takes_large_products_of_matrices_without_gaps(op, expected):
    assert BLAS.rules.supports_op(op) is expected


def test_blas_works_in_the_cpus_memory():
    assert (BLAS.type, BLAS.buft) == (DeviceType.ACCEL, CPU.buft)
    assert BLAS.rules.supports_buft(BufferTypeFacts("CUDA_Host", is_host=True))
    assert not BLAS.rules.supports_buft(CPU_REPACK)


def test_the_cpu_has_memory_for_rearranged_weights():
    assert CPU.extra_bufts == (CPU_REPACK,)
    assert CPU.rules.supports_buft(CPU_REPACK)


@pytest.mark.parametrize(
    ("rows", "kind", "expected"),
    [(64, TensorType.Q4_0, True), (63, TensorType.Q4_0, False), (64, TensorType.Q4_1, False)],
)
def test_the_cpu_computes_with_rearranged_weights_where_a_layout_exists(rows, kind, expected):
    op = product(rows=rows, kind=kind, home=BufferFacts(CPU_REPACK))

    assert CPU.rules.supports_op(op) is expected


def test_a_rearranged_weight_is_no_good_for_anything_else():
    weight = Tensor(TensorType.Q4_0, (64, 64, 1, 1), buffer=BufferFacts(CPU_REPACK))
    rows = build.get_rows(weight, Tensor(TensorType.I32, (4, 1, 1, 1)))

    assert not CPU.rules.supports_op(rows)
    assert CPU.rules.supports_op(build.view(weight, (64, 8)))


SPLITTING = parse_virtual("GPU0:gpu:8192:split=1,noops=GLU")
SPLIT = split_memory(SPLITTING, RowShares(("GPU0", "GPU1"), (1.0, 1.0)))


def test_a_device_with_split_memory_reads_its_own_only():
    other = split_memory(parse_virtual("GPU1:gpu:8192"), RowShares(("GPU0", "GPU1"), (1.0, 1.0)))

    assert SPLITTING.splits_rows
    assert SPLITTING.rules.supports_buft(SPLIT)
    assert SPLITTING.rules.supports_buft(SPLITTING.buft)
    assert not SPLITTING.rules.supports_buft(other)
    assert not parse_virtual("GPU0:gpu:8192").rules.supports_buft(SPLIT)


def test_from_split_memory_a_device_computes_products_only():
    weight = Tensor(TensorType.F32, (64, 64, 1, 1), buffer=BufferFacts(SPLIT))
    x = Tensor(TensorType.F32, (64, 64, 1, 1))

    assert SPLITTING.rules.supports_op(build.mul_mat(weight, x))
    assert not SPLITTING.rules.supports_op(build.binary(Op.ADD, x, weight))
    assert SPLITTING.rules.supports_op(build.binary(Op.ADD, x, x))
    assert SPLITTING.rules.supports_op(build.view(weight, (64, 8)))
