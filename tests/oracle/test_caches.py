"""What the kind of cache may not change: logits, however cells are shared out or packed."""

import numpy as np
import pytest

from engine.core.options import FlashAttn, Options
from engine.session import Session
from engine.trace.records import StepKind
from tests.oracle import golden


def logits(model, tokens, **options):
    """Return the logits after the last of `tokens`, on the CPU."""
    session = Session()
    session.open(str(model))
    session.options = Options(**{"devices": ("none",), **options})
    context = session.prepare()
    try:
        return context.decode(tokens, StepKind.PROMPT).copy(), context.planner
    finally:
        session.close()


def divergence(expected, found):
    """Return the Kullback-Leibler divergence of two sets of logits."""
    p, q = (np.exp(x - x.max(), dtype=np.float64) for x in (expected, found))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


@pytest.mark.big_set
@pytest.mark.parametrize("flash_attn", [FlashAttn.ON, FlashAttn.OFF])
def test_cells_that_are_taken_again_change_no_logits(flash_attn):
    """Tiny Gemma sees 8 tokens back; 256 cells are taken three times over, or 1024 once."""
    model = golden.path("arch/models/gemma3.gguf")
    tokens = [int(t) for t in np.random.default_rng(0).integers(3, 1000, 700)]

    reused, small = logits(model, tokens, n_ctx=1024, n_ubatch=64, flash_attn=flash_attn)
    once, large = logits(model, tokens, n_ctx=1024, n_ubatch=1000, flash_attn=flash_attn)

    assert [p.cache.parts[1].n_cells for p in (small, large)] == [256, 1024]
    assert np.abs(reused - once).max() < 1e-2
    assert reused.argmax() == once.argmax()


@pytest.mark.demo
@pytest.mark.parametrize(("type_k", "type_v"), [("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0")])
def test_a_rotated_cache_of_8_bits_gives_nearly_the_same_logits(demo_model, type_k, type_v):
    tokens = golden.tokens()["smollm2-135m-q4_1"]["p1"]["prompt_tokens"]
    options = {"n_ctx": 256, "flash_attn": FlashAttn.ON}

    plain, _ = logits(demo_model, tokens, **options)
    packed, planner = logits(
        demo_model, tokens, cache_type_k=type_k, cache_type_v=type_v, **options
    )

    (part,) = planner.cache.parts
    assert (part.k_rotation > 0, part.v_rotation > 0) == (type_k == "q8_0", type_v == "q8_0")
    # A cache of float32 instead of half precision gives 5e-3.
    assert divergence(plain, packed) < 2e-2
    assert packed.argmax() == plain.argmax()
