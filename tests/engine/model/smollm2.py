"""Plans of SmolLM2's header on devices on paper, made once each."""

import functools
from typing import Any

from engine.core.options import Options
from engine.core.table import PlanSetTable, table_of_set
from engine.gguf.reader import open_gguf
from engine.model.planning import ModelPlanner, make_planner
from tests.engine.paper import parse_virtual
from tests.oracle import golden
from tests.oracle.placement_command import options_of, recorded_devices

MODEL = "smollm2-135m-q4_1"

DEVICES = {
    "cpu": ("CPU:cpu:16384",),
    "cuda": ("CUDA0:gpu:8192:preset=cuda", "CPU:cpu:16384"),
    "plain": ("GPU0:gpu:8192", "CPU:cpu:16384"),
    "two": ("CUDA0:gpu:8192:preset=cuda", "CUDA1:gpu:4096:preset=cuda", "CPU:cpu:16384"),
    "blas": (
        "GPU0:gpu:8192:offload=32",
        "BLAS:accel:0",
        "CPU:cpu:16384",
    ),
    "no-rms-norm": ("GPU0:gpu:8192:offload=32,noops=RMS_NORM", "CPU:cpu:16384"),
    "no-attention": ("GPU0:gpu:8192:noops=FLASH_ATTN_EXT", "CPU:cpu:16384"),
}


@functools.cache
def planner(devices: str, **options: Any) -> ModelPlanner:
    facts = [parse_virtual(line) for line in DEVICES[devices]]
    with open_gguf(golden.header(MODEL)) as file:
        return make_planner(file, facts, Options(**{"n_ctx": 512, **options}))


@functools.cache
def tables(devices: str, **options: Any) -> PlanSetTable:
    return table_of_set(planner(devices, **options).plan_set())


@functools.cache
def recorded(case: str) -> PlanSetTable:
    """The plans of a recorded run."""
    command = golden.placement_commands(MODEL)[case]
    with open_gguf(golden.header(MODEL)) as file:
        made = make_planner(file, recorded_devices(command), options_of(command))
    return table_of_set(made.plan_set())
