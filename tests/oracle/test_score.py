"""Forced tokens: our logits keep llama.cpp's recorded choices within the bar."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from engine.core.options import Options, SplitMode
from engine.model.fetch import fetch_known
from engine.session import Session
from tests.oracle import golden

QUANTIZED_BAR = 0.5
FLOAT_BAR = 0.02
KL_BAR = 2e-2

PROMPTS = ("p1", "p2", "p4", "p5")


@dataclass(frozen=True)
class Case:
    """A model, the names it was recorded under, and the -ngl that is half of it.

    `prompts_with_logits`: those whose last position was recorded whole.
    """

    variants: tuple[str, ...]
    half: int
    bar: float = QUANTIZED_BAR
    prompts: tuple[str, ...] = PROMPTS
    prompts_with_logits: tuple[str, ...] = ("p1",)


SMOLLM2 = Case(("smollm2-135m-q4_1", "smollm2-f32"), 15, prompts_with_logits=PROMPTS)
NANO = Case(("nano-llama-f32",), 2, FLOAT_BAR, ("p1", "p2"), ("p1", "p2"))
FETCHED = {
    "gemma": Case(("gemma-3-270m-q4_k_m", "gemma-f32"), 9),
    "qwen": Case(("qwen2.5-0.5b", "qwen2.5-0.5b-f32"), 12),
}

GPU = Options(devices=("OpenCL0",), n_ctx=512)
# Its threads wait for one another without giving way, which is slow on a busy computer.
GGML = Options(devices=("ggml-CPU",), n_ctx=512, n_threads=1)
TWO = Options(devices=("OpenCL0", "OpenCL1"), tensor_split=(2, 1), n_ctx=512, n_ubatch=4)
PLACEMENTS = {
    "cpu": Options(devices=("none",), n_ctx=512),
    "opencl all layers": GPU,
    "opencl half, op_offload on": GPU,
    # The recorded prompts are shorter than the rule's 32 rows.
    "opencl half, op_offload from one row on": GPU,
    "opencl half, op_offload off": replace(GPU, op_offload=False),
    # Prompts of several graphs, so that there is a pipeline to fill.
    "two devices, mode none": replace(TWO, split_mode=SplitMode.NONE, main_gpu=1),
    "two devices, layers in turn": replace(TWO, n_copies=1),
    "two devices, layers as a pipeline": replace(TWO, n_copies=4),
    "two devices, rows": replace(TWO, split_mode=SplitMode.ROW),
    "two devices, rows 3 to 1": replace(TWO, split_mode=SplitMode.ROW, tensor_split=(3, 1)),
    "two devices, tensors": replace(TWO, split_mode=SplitMode.TENSOR),
    "two devices, tensors 3 to 1": replace(TWO, split_mode=SplitMode.TENSOR, tensor_split=(3, 1)),
    "two devices, rows 1 to 0": replace(TWO, split_mode=SplitMode.ROW, tensor_split=(1, 0)),
    "ggml all layers": GGML,
    "ggml half": GGML,
    "ggml in the CPU's place": replace(GGML, devices=("none",)),
}


@pytest.fixture(params=list(PLACEMENTS))
def placed(request, monkeypatch):
    """Give a function that opens a model with half of its layers, all or none on a device."""
    if "from one row" in request.param:
        monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", "1")
    if "two devices" in request.param:
        request.getfixturevalue("opencl_device")
        monkeypatch.setenv("SPLITSCOPE_OPENCL_PARTS", "2")
    if "opencl" in request.param:
        request.getfixturevalue("opencl_device")
    if "ggml" in request.param:
        request.getfixturevalue("ggml_cpu")
    session = Session()

    def open_model(path, half):
        session.open(str(path))
        options = PLACEMENTS[request.param]
        session.options = (
            replace(options, n_gpu_layers=half) if "half" in request.param else options
        )
        return session

    yield open_model
    session.close()


@pytest.fixture(scope="session")
def fetched_models():
    """Give the paths of the models that make test-models fetches, by their names."""
    return {name: fetch_known(name) for name in FETCHED}


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


def assert_bars_hold(session, case, prompt):
    """Score a prompt against the recorded variants until one of them is kept."""
    bad = {}
    for name in case.variants:
        recorded = golden.tokens()[name][prompt]
        result = session.score(recorded["prompt"], recorded["greedy"])
        assert list(result.prompt_tokens) == recorded["prompt_tokens"]
        bad[name] = list(shortfalls(result, recorded, case.bar))
        if not bad[name]:
            break
    assert not all(bad.values()), (prompt, bad)
    if prompt in case.prompts_with_logits:
        logits = [golden.logits(name, prompt) for name in case.variants]
        divergences = [kl_divergence(result.logits[0], theirs) for theirs in logits]
        assert min(divergences) <= KL_BAR, (prompt, divergences)


@pytest.mark.demo
@pytest.mark.slow
def test_smollm2_keeps_the_bars_on_every_prompt_and_placement(placed, demo_model):
    session = placed(demo_model, SMOLLM2.half)

    for prompt in SMOLLM2.prompts:
        assert_bars_hold(session, SMOLLM2, prompt)


def test_a_float_model_keeps_the_narrow_bars_on_every_placement(placed):
    session = placed(golden.model("nano-llama-f32"), NANO.half)

    for prompt in NANO.prompts:
        assert_bars_hold(session, NANO, prompt)


@pytest.mark.models
@pytest.mark.big_set
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "case"), FETCHED.items(), ids=FETCHED)
def test_larger_models_keep_the_bars_on_every_prompt_and_placement(
    placed, fetched_models, name, case
):
    session = placed(fetched_models[name], case.half)

    for prompt in case.prompts:
        assert_bars_hold(session, case, prompt)


DIGEST_OF_LOGITS = """
import hashlib, sys

from engine import paths

paths.configure_environment()
from engine.core.options import Options
from engine.session import Session

path, device, n_threads = sys.argv[1:]
session = Session()
session.open(path)
session.options = Options(devices=(device,), n_gpu_layers=15, n_ctx=512, n_threads=int(n_threads))
result = session.score("The capital of France is", [7042, 30, 198, 198, 504, 3575])
session.close()
print(hashlib.sha256(b"".join(row.tobytes() for row in result.logits)).hexdigest())
"""


def digest_of_logits(path, device, *, n_threads, hash_seed):
    """SHA-256 of every logit's bits, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", DIGEST_OF_LOGITS, str(path), device, str(n_threads)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.demo
@pytest.mark.slow
@pytest.mark.parametrize("device", ["none", pytest.param("OpenCL0", marks=pytest.mark.gpu)])
def test_logits_have_the_same_bits_whatever_the_hash_seed_and_the_threads(
    device, demo_model, request
):
    if device == "OpenCL0":
        request.getfixturevalue("opencl_device")

    digests = [
        digest_of_logits(demo_model, device, n_threads=n_threads, hash_seed=hash_seed)
        for n_threads, hash_seed in ((1, "0"), (2, "0"), (1, "1"))
    ]

    assert len(digests[0]) == len(hashlib.sha256().hexdigest() + "\n")
    assert digests[1:] == digests[:1] * 2
