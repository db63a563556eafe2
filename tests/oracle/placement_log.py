"""Compare our plans with the log of a real run: every dump, every size, every count.

What is required is described in ORACLE.md under "Placement runs".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.options import FlashAttn, SplitMode
from engine.core.plan import Batch, BatchShape, MemoryKind, PlanSet
from engine.core.tensor import Flag
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.kv_cache import attention_wish
from engine.model.planning import ModelPlanner, make_planner
from tests.oracle.placement_command import options_of, recorded_devices
from tests.oracle.placement_text import MIB, dumps, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.gguf.reader import GgufFile
    from engine.model.blocks.graph_context import BuiltGraph

PROBES = 3
"""Graphs that llama.cpp tries whatever the options are; one more when attention is auto."""

END_OF_RUN = "~llama_context:"
"""What llama.cpp prints when it gives its memory back."""

Sizes = list[tuple[str, str]]


@dataclass(frozen=True)
class Comparison:
    """`differences` count; `reported` are sizes that a recording cannot be held to."""

    differences: list[str]
    reported: list[str]


def compare(file: GgufFile, command: str, log: str, summary: str) -> Comparison:
    """Compare our plans with a recorded run; every difference is a sentence."""
    planner = make_planner(file, recorded_devices(command, log), options_of(command))
    plans = planner.plan_set()
    differences = [*compare_dumps(planner, log), *compare_counts(planner, summary)]
    memory = list(compare_memory(plans, summary))
    compute = list(compare_compute(plans, summary))
    # Of joined devices llama.cpp prints what the fullest member takes; we count each tensor once.
    is_joined = planner.options.split_mode is SplitMode.TENSOR
    # Vulkan reorders nodes after the dump, so its compute buffers are its own.
    is_reordered = "libggml-vulkan" in command
    reported: list[str] = []
    (reported if is_joined else differences).extend(memory)
    (reported if is_joined or is_reordered else differences).extend(compute)
    if is_cut(log):
        reported.append("the recording ends before the run did: its last dump is compared in part")
    return Comparison(differences, reported)


def is_cut(log: str) -> bool:
    """Whether a recording ends before the run did."""
    return END_OF_RUN not in log


@dataclass(frozen=True)
class Dumped:
    """What one dump is of: batch shape, whether attention was one operation, pipeline slot."""

    shape: BatchShape
    flash_attn: bool
    copy_slot: int = 0


def expected_dumps(planner: ModelPlanner, n_prompt: int) -> list[Dumped]:
    """What llama.cpp prints: probes, the reserved graphs, the prompt, one token.

    Of encoders nothing follows the text, which is their prompt.
    """
    flash = planner.flash_attn
    token, prompt = planner.worst_shape(Batch.TOKEN), planner.worst_shape(Batch.PROMPT)
    made = []
    if attention_wish(planner.options) is FlashAttn.AUTO:
        made.append(Dumped(token, flash_attn=True))
    made += [Dumped(token, flash)] * PROBES
    made += [Dumped(shape, flash) for shape in (prompt, token, prompt)]
    made.append(Dumped(planner.run_shape(n_prompt, 0), flash))
    if planner.hparams.encoder is not None:
        return made
    # Nothing was synchronised with the graph released, so the next one takes the next slot.
    slot = 1 % planner.model.n_copies
    made.append(Dumped(planner.run_shape(1, n_prompt), flash, slot))
    # llama.cpp uses no graph again that has this input, so its second token has one of its own.
    if InputKey(InputKind.TEMPERATURE) in planner.reserved[Batch.TOKEN].built.inputs:
        slot = 2 % planner.model.n_copies
        made.append(Dumped(planner.run_shape(1, n_prompt + 1), flash, slot))
    return made


def compare_dumps(planner: ModelPlanner, log: str) -> Iterator[str]:
    recorded = dumps(log)
    n_prompt = number_in(r"(?:embd_inp\.size\(\):|batch_decode: n_tokens =) (\d+)", log)
    expected = expected_dumps(planner, int(n_prompt))
    reserved = re.findall(r"graph_reserve: reserving[^\n]*n_tokens = +(\d+)", log)
    ours = [str(dumped.shape.n_tokens) for dumped in expected[: len(reserved)]]
    is_whole = len(recorded) == len(expected) or (is_cut(log) and len(recorded) < len(expected))
    if not is_whole or ours != reserved:
        yield (
            f"dumps: ours {len(expected)}, reserved for {', '.join(ours)} tokens; "
            f"recorded {len(recorded)}, reserved for {', '.join(reserved)}"
        )
    rendered: dict[Dumped, list[str]] = {}
    for i_dump, (dumped, lines) in enumerate(zip(expected, recorded, strict=False)):
        if dumped not in rendered:
            rendered[dumped] = _render(planner, dumped)
        ours_of_dump = rendered[dumped]
        if is_cut(log) and i_dump == len(recorded) - 1:
            ours_of_dump = _cut_like(ours_of_dump, lines)
        difference = first_difference(ours_of_dump, lines)
        if difference:
            yield f"dump {i_dump} ({dumped.shape.n_tokens} tokens): {difference}"


def _cut_like(ours: list[str], recorded: list[str]) -> list[str]:
    """As much of our lines as a recording has that ends anywhere."""
    *whole, last = ours[: len(recorded)]
    return [*whole, last[: len(recorded[-1])].rstrip()]


def _render(planner: ModelPlanner, dumped: Dumped) -> list[str]:
    batch = Batch.TOKEN if dumped.shape.n_tokens == 1 else Batch.PROMPT
    planned = planner.plan(
        batch, dumped.shape, flash_attn=dumped.flash_attn, copy_slot=dumped.copy_slot
    )
    return render(planned.plan)


def first_difference(ours: list[str], recorded: list[str]) -> str:
    """The first lines that differ and how many do; empty when none does."""
    pairs = list(zip(ours, recorded, strict=False))
    i_first = next((i for i, (our, their) in enumerate(pairs) if our != their), len(pairs))
    n_different = sum(our != their for our, their in pairs) + abs(len(ours) - len(recorded))
    if not n_different:
        return ""
    our, their = ((*lines, "nothing")[min(i_first, len(lines))] for lines in (ours, recorded))
    return f"{n_different} lines, the first\n      ours     {our}\n      recorded {their}"


def compare_memory(plans: PlanSet, summary: str) -> Iterator[str]:
    labels = {
        "model": MemoryKind.MODEL,
        "KV": MemoryKind.KV,
        "RS": MemoryKind.STATE,
        "output": MemoryKind.OUTPUT,
    }
    for label, kind in labels.items():
        recorded: Sizes = re.findall(rf": +(\S+) +{label} buffer size = +([\d.]+) MiB", summary)
        ours = _sizes(plans, kind, n_digits=2)
        if ours != recorded:
            yield f"{label}: ours {ours} recorded {recorded}"


def compare_compute(plans: PlanSet, summary: str) -> Iterator[str]:
    """The sizes at the end of the run have four digits; those when it began have two."""
    exact: Sizes = re.findall(r"~llama_context: +(\S+) compute buffer size is +([\d.]+)", summary)
    rough: Sizes = re.findall(r"reserve: +(\S+) compute buffer size = +([\d.]+) MiB", summary)
    recorded = [pair for pair in exact or rough if float(pair[1])]
    ours = _sizes(plans, MemoryKind.COMPUTE, n_digits=4 if exact else 2)
    if ours != recorded:
        yield f"compute: ours {ours} recorded {recorded}"


def _sizes(plans: PlanSet, kind: MemoryKind, *, n_digits: int) -> Sizes:
    rows = [row for row in plans.memory.rows if row.kind is kind]
    return [(row.buft.name, f"{row.n_bytes / MIB:.{n_digits}f}") for row in rows]


def compare_counts(planner: ModelPlanner, summary: str) -> Iterator[str]:
    worst = [planner.reserved[batch] for batch in (Batch.PROMPT, Batch.TOKEN)]
    pairs = {
        "nodes": [len(planned.plan.graph.nodes) for planned in worst],
        "splits": [len(planned.plan.trace.cut.splits) for planned in worst],
        "input objects": [n_input_objects(planned.built) for planned in worst],
        "input tensors": [n_input_tensors(planned.built) for planned in worst],
    }
    for label, (prompt, token) in pairs.items():
        words = number_in(rf"graph[^\n]*{label} = (\d+(?: / \d+)?)", summary).split(" / ")
        recorded_pair = (int(words[0]), int(words[-1]))
        if (prompt, token) != recorded_pair:
            yield f"{label}: ours {(prompt, token)} recorded {recorded_pair}"
    n_layer = planner.hparams.n_layer_all + 1
    n_offloaded = min(planner.placement.n_gpu_layers, n_layer)
    singles = {
        "offloaded": (r"offloaded (\d+/\d+) layers", f"{n_offloaded}/{n_layer}"),
        "max_nodes": (r"max_nodes = (\d+)", str(planner.max_nodes)),
        "sched copies": (r"sched copies = (\d+)", str(planner.model.n_copies)),
    }
    for label, (pattern, our) in singles.items():
        recorded = number_in(pattern, summary)
        if our != recorded:
            yield f"{label}: ours {our} recorded {recorded}"


def n_input_objects(built: BuiltGraph) -> int:
    """Inputs as llama.cpp groups them: all of the memory are one, tokens and embeddings another."""
    return len({_object_of(key.kind.value) for key in built.inputs})


def _object_of(name: str) -> str:
    if name.startswith("attn_inp") or name == "rs_s_copy":
        return "memory"
    return "embeddings" if name in ("inp_tokens", "inp_embd") else name


def n_input_tensors(built: BuiltGraph) -> int:
    """Inputs that some node reads."""
    nodes = built.graph.nodes
    return len({source for node in nodes for source in node.src if source.flags & Flag.INPUT})


def number_in(pattern: str, text: str) -> str:
    """The group of the first match; an assertion names what is not there."""
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in the recording"
    return found.group(1)
