"""Models on two OpenCL devices as one: what is computed, held, recorded and refused."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.options import FlashAttn, Options, SplitMode
from engine.errors import PlacementError
from engine.session import Session
from engine.trace.records import MEMBER_LANE, SpanKind
from tests.engine.nano import nano
from tests.oracle import golden
from tests.oracle.node_values import nmse

PROMPT = "The capital of France is a large old city"
FORCED = [5, 9, 44, 17]
ONE = Options(devices=("OpenCL0",), n_ctx=256, flash_attn=FlashAttn.ON)
TWO = replace(ONE, devices=("OpenCL0", "OpenCL1"), split_mode=SplitMode.TENSOR)
BAR = 1e-6
"""Sums in another order, with activations in float32 and a cache in float16."""

MEMBERS = (MEMBER_LANE, MEMBER_LANE + 1)


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setenv("SPLITSCOPE_OPENCL_PARTS", "2")
    made = Session()
    names = [device.name for device in made.devices()]
    if "OpenCL1" not in names:
        pytest.skip(f"OpenCL: no two devices, {', '.join(names)}")
    made.open(nano())
    yield made
    made.close()


def logits(session, options):
    session.options = options
    return np.concatenate(session.score(PROMPT, FORCED).logits)


def spans_of(session, kind):
    spans = session.snapshot().spans()
    return spans[spans["kind"] == kind]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tensor_split": (3, 1)},
        {"tensor_split": (1, 0)},
        {"tensor_split": (0, 1)},
        {"n_gpu_layers": 1},
        {"offload_kqv": False},
    ],
    ids=str,
)
def test_two_devices_give_the_logits_of_one(session, more):
    alone = {key: value for key, value in more.items() if key != "tensor_split"}

    one = logits(session, replace(ONE, **alone))
    two = logits(session, replace(TWO, **more))

    assert nmse(two, one) <= BAR


WHOLE_ATTENTION = ("phi3", "qwen35", "qwen35moe")
"""Models whose attention is on both devices: fused or recurrent."""
ARCHITECTURES = (
    "gemma3", "gemma4", "gemma4-moe", "glm4moe", "gpt-oss", "gptneox", "granitemoe", "llama4",
    "qwen3", *WHOLE_ATTENTION,
)  # fmt: skip
QUANTIZED_BAR = 5e-4


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.big_set
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_every_architecture_gives_the_logits_of_one_device(session, model):
    session.open(str(golden.path(f"arch/models/{model}.gguf")))

    one = logits(session, ONE)
    two = logits(session, replace(TWO, tensor_split=(2, 1)))

    assert nmse(two, one) <= QUANTIZED_BAR


@pytest.mark.gpu
@pytest.mark.big_set
@pytest.mark.parametrize("model", ["bert", "nomic-bert"])
def test_embeddings_are_those_of_one_device(session, model):
    session.open(str(golden.path(f"arch/models/{model}.gguf")))
    rows = []
    for options in (ONE, TWO):
        session.options = options
        rows.append(np.asarray(session.embed(PROMPT).rows))

    assert nmse(rows[1], rows[0]) <= BAR


@pytest.mark.gpu
@pytest.mark.big_set
@pytest.mark.parametrize("cache", ["f16", "q8_0"])
def test_caches_of_quantised_heads_are_shared_too(session, cache):
    session.open(str(golden.model("tiny-qwen3moe-q8_0")))
    types = {"cache_type_k": cache, "cache_type_v": cache}

    one = logits(session, replace(ONE, **types))
    two = logits(session, replace(TWO, **types))

    assert nmse(two, one) <= QUANTIZED_BAR


@pytest.mark.gpu
def test_logits_have_the_same_bits_each_time(session):
    assert logits(session, TWO).tobytes() == logits(session, TWO).tobytes()


@pytest.mark.gpu
def test_stages_and_exchanges_of_each_member_are_in_the_trace(session):
    session.options = TWO
    session.run(PROMPT, 3)

    shards, exchanges = spans_of(session, SpanKind.SHARD), spans_of(session, SpanKind.EXCHANGE)
    splits = spans_of(session, SpanKind.SPLIT)
    assert set(shards["lane"]) == set(MEMBERS)
    assert {(int(s["lane"]), int(s["peer"])) for s in exchanges} == {MEMBERS, MEMBERS[::-1]}
    assert (exchanges["bytes"] > 0).all()
    # Two sums a layer, to each member, and the logits.
    n_layers, n_steps = 3, 3
    assert len(exchanges) == n_steps * 2 * (2 * n_layers + 1)
    for shard in (*shards, *exchanges):
        (split,) = splits[(splits["step"] == shard["step"]) & (splits["index"] == shard["index"])]
        assert split["start_ns"] <= shard["start_ns"] <= shard["end_ns"] <= split["end_ns"]


@pytest.mark.gpu
def test_what_is_asked_for_is_told_beside_what_members_have(session):
    shares = session.plan(replace(TWO, tensor_split=(3, 1))).memory.shares

    assert [(share.device, share.asked) for share in shares] == [
        ("OpenCL0", 0.75),
        ("OpenCL1", 0.25),
    ]
    assert sum(share.achieved for share in shares) == pytest.approx(1)
    assert 0.6 < shares[0].achieved < 0.8


@pytest.mark.gpu
def test_without_flash_attention_nothing_is_loaded(session):
    session.options = replace(TWO, flash_attn=FlashAttn.OFF)

    with pytest.raises(PlacementError, match="-sm tensor needs flash attention"):
        session.run(PROMPT, 1)
