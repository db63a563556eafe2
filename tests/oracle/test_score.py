"""Forced tokens: our logits keep llama.cpp's recorded choices within the bar."""

import numpy as np
import pytest

from engine.core.options import Options
from engine.session import Session
from tests.oracle import golden

QUANTIZED_BAR = 0.5
FLOAT_BAR = 0.02
KL_BAR = 2e-2
PLACEMENTS = {
    "cpu": Options(devices=("none",)),
    "opencl all layers": Options(devices=("OpenCL0",)),
    "opencl 15 layers, op_offload on": Options(devices=("OpenCL0",), n_gpu_layers=15),
    "opencl 15 layers, op_offload from one row on": Options(devices=("OpenCL0",), n_gpu_layers=15),
    "opencl 15 layers, op_offload off": Options(
        devices=("OpenCL0",), n_gpu_layers=15, op_offload=False
    ),
}


def shortfalls(result, recorded, bar):
    """Steps at which the recorded token is too far below ours, or a clear choice differs."""
    for step, token, gap in zip(
        result.steps, recorded["greedy"], recorded["top1_gap"], strict=True
    ):
        if step.gap > bar or (gap >= bar and step.argmax != token):
            yield step, gap


def kl_divergence(ours, theirs):
    """KL(ours || theirs) of the softmax of two rows of logits."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    log_ours = ours - ours.max() - np.log(np.exp(ours - ours.max()).sum())
    log_theirs = theirs - theirs.max() - np.log(np.exp(theirs - theirs.max()).sum())
    return float((np.exp(log_ours) * (log_ours - log_theirs)).sum())


def prompts_of(model):
    return golden.tokens()[model]


@pytest.fixture(params=list(PLACEMENTS))
def placed_session(request, demo_model, monkeypatch):
    if "from one row" in request.param:
        # The recorded prompts are shorter than the rule's 32 rows.
        monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", "1")
    if "opencl" in request.param:
        request.getfixturevalue("opencl_device")
    session = Session()
    session.open(str(demo_model))
    session.options = PLACEMENTS[request.param]
    yield session
    session.close()


@pytest.mark.demo
@pytest.mark.slow
def test_smollm2_keeps_the_bar_on_every_prompt_and_placement(placed_session):
    variants = [prompts_of("smollm2-135m-q4_1"), prompts_of("smollm2-f32")]
    for prompt in ("p1", "p2", "p4", "p5"):
        passed, divergences = [], []
        for name, variant in zip(("smollm2-135m-q4_1", "smollm2-f32"), variants, strict=True):
            recorded = variant[prompt]
            result = placed_session.score(recorded["prompt"], recorded["greedy"])

            assert list(result.prompt_tokens) == recorded["prompt_tokens"]
            passed.append(not list(shortfalls(result, recorded, QUANTIZED_BAR)))
            divergences.append(kl_divergence(result.logits[0], golden.logits(name, prompt)))
        assert any(passed), (prompt, passed)
        assert min(divergences) <= KL_BAR, (prompt, divergences)
