"""Planning of headers that no file stands behind: python tests/bench/bench_planning.py [RUNS]

Prompt and token batch together, the header already parsed, on devices on paper. "full" plans from
nothing; "op_offload" and "ngl" change that option of a plan that is there. Milliseconds of this
process's CPU: median of the runs, and the fastest and the slowest.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.options import Options
from engine.core.plan import Batch
from engine.core.types import TensorType
from engine.gguf.reader import GgufFile, open_gguf
from engine.gguf.writer import TensorSpec, header_bytes
from engine.model.planning import ModelPlanner, make_planner
from tests.engine.paper import parse_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 15
MATRIX = TensorType.Q4_K
DEVICES = ("CUDA0:gpu:24576:preset=cuda", "CUDA1:gpu:24576:preset=cuda", "CPU:cpu:131072")

ATTENTION = {"attn_norm": "E", "attn_q": "EQ", "attn_k": "EK", "attn_v": "EK", "attn_output": "QE"}
DENSE = ATTENTION | {"ffn_norm": "E", "ffn_gate": "EF", "ffn_up": "EF", "ffn_down": "FE"}
EXPERTS = ATTENTION | {
    "attn_q_norm": "D", "attn_k_norm": "D", "ffn_norm": "E", "ffn_gate_inp": "EX",
    "ffn_gate_exps": "EFX", "ffn_up_exps": "EFX", "ffn_down_exps": "FEX",
}  # fmt: skip
"""Weights of a layer, and the letters of the sizes their shapes are made of."""


def main() -> None:
    """Print a line for each model, layers on devices, and change."""
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with tempfile.TemporaryDirectory() as folder:
        for name, n_layer, make in (("dense", 32, dense), ("experts", 94, experts)):
            path = Path(folder) / f"{name}.gguf"
            path.write_bytes(make(n_layer))
            with open_gguf(path) as file:
                for n_gpu_layers in (n_layer // 2, -1):
                    report(file, f"{name}, {n_layer} layers", n_gpu_layers, n_runs)


def report(file: GgufFile, name: str, n_gpu_layers: int, n_runs: int) -> None:
    """Measure one model with some layers on devices."""
    devices = [parse_virtual(line) for line in DEVICES]
    options = Options(n_ctx=4096, n_gpu_layers=n_gpu_layers)
    ids = itertools.count(1)

    def planned(options: Options, before: ModelPlanner | None = None) -> ModelPlanner:
        planner = make_planner(file, devices, options, plan_ids=ids, before=before)
        planner.plan_set()
        return planner

    first = planned(options)
    prompt = first.reserved[Batch.PROMPT].plan
    n_nodes, n_splits = len(prompt.graph.nodes), len(prompt.trace.cut.splits)
    print(f"{name}, -ngl {n_gpu_layers}: {n_nodes} nodes, {n_splits} splits of the prompt")
    flipped = replace(options, op_offload=False)
    fewer = replace(options, n_gpu_layers=first.placement.n_gpu_layers - 1)
    for label, run in (
        ("full", lambda: planned(options)),
        ("op_offload", lambda: planned(flipped, first)),
        ("ngl", lambda: planned(fewer, first)),
    ):
        times = [cpu_ms(run) for _ in range(n_runs)]
        median = statistics.median(times)
        print(f"  {label:10s} {median:7.1f} ms  ({min(times):.1f} to {max(times):.1f})")


def cpu_ms(run: Callable[[], object]) -> float:
    """CPU time of one run; what else the machine does is left out."""
    start_ns = time.process_time_ns()
    run()
    return (time.process_time_ns() - start_ns) / 1e6


def dense(n_layer: int) -> bytes:
    """A header like Llama 3 8B's."""
    sizes = {"E": 4096, "Q": 4096, "K": 1024, "F": 14336}
    keys = {"attention.head_count": 32, "attention.head_count_kv": 8, "feed_forward_length": 14336}
    return header("llama", n_layer, sizes, DENSE, keys)


def experts(n_layer: int) -> bytes:
    """A header like that of Qwen3 235B A22B."""
    sizes = {"E": 4096, "Q": 8192, "K": 512, "D": 128, "F": 1536, "X": 128}
    keys = {
        "attention.head_count": 64, "attention.head_count_kv": 4, "attention.key_length": 128,
        "attention.value_length": 128, "expert_count": 128, "expert_used_count": 8,
        "expert_feed_forward_length": 1536,
    }  # fmt: skip
    return header("qwen3moe", n_layer, sizes, EXPERTS, keys)


def header(
    arch: str, n_layer: int, sizes: dict[str, int], layer: dict[str, str], keys: dict[str, int]
) -> bytes:
    """The header of a model whose vocabulary is as large as its token embeddings."""
    n_vocab = 128256
    numbers = {
        "block_count": n_layer, "context_length": 8192, "embedding_length": sizes["E"],
        "attention.layer_norm_rms_epsilon": 1e-5, **keys,
    }  # fmt: skip
    metadata = {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in numbers.items()}
    tensors: list[TensorSpec] = [
        ("token_embd.weight", MATRIX, (sizes["E"], n_vocab)),
        ("output_norm.weight", TensorType.F32, (sizes["E"],)),
        ("output.weight", TensorType.Q6_K, (sizes["E"], n_vocab)),
    ]
    for il in range(n_layer):
        for name, letters in layer.items():
            ne = tuple(sizes[letter] for letter in letters)
            is_small = len(ne) == 1 or name == "ffn_gate_inp"
            kind = TensorType.F32 if is_small else MATRIX
            tensors.append((f"blk.{il}.{name}.weight", kind, ne))
    return header_bytes(metadata, tensors)


if __name__ == "__main__":
    main()
