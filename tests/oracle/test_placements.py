"""Plans of SmolLM2's header equal what real llama.cpp logged: nodes, causes, splits, sizes."""

import re

import pytest

from engine.backends.null.virtual import parse_virtual
from engine.gguf.reader import open_gguf
from tests.oracle import golden
from tests.oracle.placement_log import compare

MODEL = "smollm2-135m-q4_1"
CASES = ["cpu-norpc", "ngl0-norepack", "ngl2-offload", "ngl2-no-op-offload", "ngl-all-1dev"]


def recorded_devices(command: str):
    """The devices of a recorded run: RPC servers as GPUs, and a CPU."""
    found = re.search(r"--rpc (\S+)", command)
    endpoints = found.group(1).split(",") if found else []
    if "-sm none" in command:
        endpoints = endpoints[:1]
    offload = ",offload=32" if "ORACLE_RPC_OFFLOAD=1" in command else ""
    devices = [
        parse_virtual(f"RPC{i}:gpu:24105:preset=rpc,buft=RPC0[{endpoint}]{offload}")
        for i, endpoint in enumerate(endpoints)
    ]
    return [*devices, parse_virtual("CPU:cpu:24105")]


@pytest.mark.parametrize("case", CASES)
def test_plan_equals_the_log_of_real_llama_cpp(case):
    command = golden.placement_commands(MODEL)[case]
    log, summary = golden.placement(MODEL, case)

    with open_gguf(golden.header(MODEL)) as file:
        differences = compare(file, recorded_devices(command), command, log, summary)

    assert differences == []
