"""Facts of devices and the rules that are tables."""

import pytest

from engine.core import build
from engine.core.devices import BufferTypeFacts, DeviceFacts, DeviceType, TableRules, offload_batch
from engine.core.ops import RopeParams, UnaryOp
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

HOST = BufferTypeFacts("CPU", is_host=True)
GPU = BufferTypeFacts("GPU0")


def t(*ne, tensor_type=TensorType.F32):
    return Tensor(tensor_type, shape4(*ne))


@pytest.mark.parametrize(
    ("op", "batch"),
    [
        (build.get_rows(t(64, 9), t(512, tensor_type=TensorType.I32)), 0),
        (build.mul_mat(t(64, 8), t(64, 33, 7)), 33),
        (build.mul_mat_id(t(64, 8, 4), t(64, 1, 5), t(2, 5, tensor_type=TensorType.I32)), 5),
        (build.rope(t(8, 2, 3), t(3, tensor_type=TensorType.I32), None, RopeParams(8)), 3),
        (build.mul(t(64, 32), t(64)), 32),
        (build.add(t(64, 4, 5, 6), t(64)), 120),
    ],
    ids=lambda value: value.op_desc if isinstance(value, Tensor) else "",
)
def test_the_batch_of_an_operation_is_cudas(op, batch):
    assert offload_batch(op) == batch


@pytest.mark.parametrize(("rows", "wanted"), [(31, False), (32, True), (33, True)])
def test_offload_begins_at_the_threshold(rows, wanted):
    rules = TableRules(offload_min_batch=32)

    assert rules.offload_op(build.mul_mat(t(64, 8), t(64, rows))) is wanted


def test_without_a_threshold_nothing_is_offloaded():
    assert not TableRules().offload_op(build.mul_mat(t(64, 8), t(64, 512)))


def test_operations_are_listed_by_what_ggml_describes():
    silu = build.unary(t(8), UnaryOp.SILU)

    assert TableRules(ops=frozenset({"SILU"})).supports_op(silu)
    assert not TableRules(ops=frozenset({"UNARY"})).supports_op(silu)


def test_what_is_excluded_wins_over_what_is_listed():
    rules = TableRules(ops=frozenset({"ADD"}), not_ops=frozenset({"ADD"}))

    assert not rules.supports_op(build.add(t(8), t(8)))


def test_leafs_and_views_are_always_supported():
    rules = TableRules(ops=frozenset())

    assert rules.supports_op(t(8))
    assert rules.supports_op(build.reshape(t(8), 4, 2))


@pytest.mark.parametrize(
    ("rules", "buft", "reads"),
    [
        (TableRules(bufts=frozenset({"GPU0"})), GPU, True),
        (TableRules(bufts=frozenset({"GPU0"})), HOST, False),
        (TableRules(host_bufts=True), HOST, True),
        (TableRules(host_bufts=True), GPU, False),
    ],
)
def test_memory_is_read_when_listed_or_when_host_memory_is_enough(rules, buft, reads):
    assert rules.supports_buft(buft) is reads


@pytest.mark.parametrize(
    ("tensor", "n_bytes"),
    [
        (t(64, 2, tensor_type=TensorType.Q4_0), 2 * 36 + 14 * 18),
        (t(512, 2, tensor_type=TensorType.Q4_0), 2 * 16 * 18),
        (t(64, 2), 512),
    ],
    ids=["short rows", "whole rows", "not quantised"],
)
def test_quantised_rows_are_padded_once_by_cudas_rule(tensor, n_bytes):
    assert BufferTypeFacts("CUDA0", pad_row_elems=512).alloc_bytes(tensor) == n_bytes


def test_a_stream_is_called_like_its_device_unless_it_says_otherwise():
    facts = DeviceFacts("RPC0", "", DeviceType.GPU, "RPC", GPU, TableRules())

    assert facts.stream_name == "RPC0"
    named = DeviceFacts("RPC0", "", DeviceType.GPU, "RPC", GPU, TableRules(), stream="RPC0[host]")
    assert named.stream_name == "RPC0[host]"
