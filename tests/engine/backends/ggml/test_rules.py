"""What a real ggml CPU says that it can do."""

import pytest

from engine.core import build
from engine.core.devices import CPU_BUFT, BufferFacts, BufferTypeFacts, BufferUsage, mapped
from engine.core.ops import Op
from engine.core.tensor import Tensor
from engine.core.types import TensorType

F32, F16 = TensorType.F32, TensorType.F16
OPENCL = BufferTypeFacts("OpenCL0", alignment=128)


@pytest.fixture
def rules(device):
    return device.facts.rules


@pytest.fixture
def layer_rules(device):
    return device.facts.taking_layers().rules


def product(weight_type=F32, x_type=F32, buft=None):
    home = None if buft is None else BufferFacts(buft, BufferUsage.WEIGHTS)
    weight = Tensor(weight_type, (256, 64, 1, 1), buffer=home)
    return build.mul_mat(weight, Tensor(x_type, (256, 5, 1, 1)))


def test_a_product_is_supported(rules):
    assert rules.supports_op(product())


def test_the_types_of_a_product_decide(rules):
    # Half precision times whole numbers of 32 bits is nothing that a kernel is there for.
    assert not rules.supports_op(product(F16, TensorType.I32))


def test_an_operation_that_this_version_lacks_is_not_supported(rules, reg, monkeypatch):
    monkeypatch.delitem(reg.base.numbers.ops, Op.MUL_MAT)

    assert not rules.supports_op(product(TensorType.Q8_0))


def test_views_are_always_supported(rules):
    assert rules.supports_op(build.view(Tensor(F32, (8, 8, 1, 1)), (4,)))


def test_interleaved_weights_are_for_products_only(rules, device):
    repack = next(b.facts for b in device.extra_buffer_types() if "REPACK" in b.facts.name)
    table = Tensor(TensorType.Q4_0, (256, 64, 1, 1), buffer=BufferFacts(repack))
    ids = Tensor(TensorType.I32, (5, 1, 1, 1))

    assert rules.supports_op(product(TensorType.Q4_0, buft=repack))
    assert not rules.supports_op(product(TensorType.F32, buft=repack))
    assert not rules.supports_op(build.get_rows(table, ids))


def test_all_memory_of_the_host_is_read_in_place(rules, device):
    own = device.buffer_type().facts

    assert all(rules.supports_buft(buft) for buft in (CPU_BUFT, mapped(CPU_BUFT), own, mapped(own)))
    assert not rules.supports_buft(OPENCL)


def test_a_device_that_takes_layers_works_in_its_own_memory(layer_rules, device):
    own = device.buffer_type().facts
    extra = device.extra_buffer_types()[0].facts

    assert all(layer_rules.supports_buft(buft) for buft in (own, mapped(own), extra))
    assert not layer_rules.supports_buft(CPU_BUFT)
    assert not layer_rules.supports_buft(mapped(CPU_BUFT))


def test_a_cpu_wants_nothing_copied_to_it(rules):
    assert not rules.offload_op(product())


def test_each_question_is_asked_once(device, reg, monkeypatch):
    rules = device.facts.rules
    asked = []
    question = Tensor(F32, (96, 3, 1, 1))
    real = rules._api.ggml_backend_dev_supports_op
    monkeypatch.setattr(
        rules._api, "ggml_backend_dev_supports_op", lambda *a: asked.append(a) or real(*a)
    )

    first, again = build.scale(question, 2.0), build.scale(question, 2.0)

    assert rules.supports_op(first)
    assert rules.supports_op(again)
    assert len(asked) == 1
    assert reg.base.api is rules._api
