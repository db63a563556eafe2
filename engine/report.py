"""What a session says of models, runs and traces: sums over what was planned and measured.

Pure but for `host_memory_bytes` and `physical_cores`, which ask the system, and
`settled_snapshot`, which waits for times that a driver still has to deliver.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.core.devices import DeviceFacts
from engine.core.options import OPTION_SPECS, Options
from engine.core.plan import Batch
from engine.core.summary import (
    CopyTiming,
    DeviceSummary,
    ModelSummary,
    RunState,
    RunSummary,
    SplitTiming,
    StopReason,
    TensorSummary,
)
from engine.errors import UserError
from engine.model.arch import find_architecture
from engine.model.hparams import architecture, read_hparams
from engine.model.loader import check_loadable
from engine.text.chat_template import has_template
from engine.text.tokenizer import Tokenizer
from engine.trace.export.meta import CopyMeta, LaneMeta, NodeMeta, PlanMeta, SplitMeta, TraceMeta
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    from engine.core.table import PlanTable
    from engine.gguf.reader import GgufFile
    from engine.trace.recorder import Recorder
    from engine.trace.snapshot import TraceSnapshot

NS_PER_S = 1_000_000_000
SETTLE_S = 1.0
"""How long a snapshot waits for times that a driver's thread still has to deliver."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands, for a screen."""

    state: RunState
    n_prompt_tokens: int = 0
    n_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0


@dataclass(slots=True)
class RunProgress:
    """Counts of a run in progress; `tell` hears of every change of state and every token."""

    tell: Callable[[RunStatus], None]
    state: RunState = RunState.IDLE
    n_prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    prefill_tokens_per_s: float = 0.0
    _since_ns: int = 0
    _decode_ns: int = 0
    _n_decoded: int = 0

    def enter(self, state: RunState) -> None:
        """The run is doing something else now."""
        self.state = state
        self._since_ns = time.monotonic_ns()
        self._tell()

    def prompt_done(self) -> None:
        """The prompt was read."""
        elapsed_ns = time.monotonic_ns() - self._since_ns
        self.prefill_tokens_per_s = self.n_prompt_tokens * NS_PER_S / max(elapsed_ns, 1)
        self.enter(RunState.GENERATING)

    def add(self, token: int) -> None:
        """A token was chosen."""
        self.tokens.append(token)
        self._tell()

    def token_done(self) -> None:
        """A token was computed."""
        now_ns = time.monotonic_ns()
        self._decode_ns += now_ns - self._since_ns
        self._n_decoded += 1
        self._since_ns = now_ns

    def _tell(self) -> None:
        speed = self._n_decoded * NS_PER_S / self._decode_ns if self._decode_ns else 0.0
        self.tell(
            RunStatus(
                self.state,
                self.n_prompt_tokens,
                len(self.tokens),
                self.prefill_tokens_per_s,
                speed,
            )
        )


def host_memory_bytes() -> int:
    """Physical memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def physical_cores() -> int:
    """Physical cores this process may use, at least 1; as llama.cpp chooses its threads."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = set()
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        try:
            cores.add((folder / "core_cpus_list").read_text())
        except OSError:
            return usable or 1
    return max(1, min(usable or 1, len(cores) or usable or 1))


def device_summary(facts: DeviceFacts, *, virtual: bool) -> DeviceSummary:
    """A device for people."""
    return DeviceSummary(
        name=facts.name,
        description=facts.description,
        type=facts.type,
        memory_free=facts.memory_free,
        memory_total=facts.memory_total,
        software=facts.software,
        virtual=virtual,
    )


def model_summary(file: GgufFile) -> ModelSummary:
    """What is said of an opened file, also when it can be neither planned nor run."""
    arch = file.metadata.get("general.architecture")
    arch_text = arch if isinstance(arch, str) else "unknown"
    return ModelSummary(
        path=str(file.path),
        name=_text(file, "general.name", Path(file.path).stem),
        arch=arch_text,
        quantization=_main_type(file),
        file_bytes=file.size,
        weight_bytes=sum(info.n_bytes for info in file.tensors),
        n_layers=_count(file, f"{arch_text}.block_count"),
        n_embd=_count(file, f"{arch_text}.embedding_length"),
        n_head=_count(file, f"{arch_text}.attention.head_count"),
        n_head_kv=_count(file, f"{arch_text}.attention.head_count_kv"),
        n_vocab=_vocabulary(file),
        n_ctx_train=_count(file, f"{arch_text}.context_length"),
        tensors=tuple(
            TensorSummary(info.name, info.type.label, info.ne, info.n_bytes)
            for info in file.tensors
        ),
        has_chat_template=has_template(file.metadata),
        plan_problem=_problem(lambda: _check_plannable(file)),
        run_problem=_problem(lambda: _check_runnable(file)),
    )


def _check_plannable(file: GgufFile) -> None:
    arch = architecture(file.metadata)
    find_architecture(arch)
    find_architecture(arch, n_expert=read_hparams(file).n_expert)


def _check_runnable(file: GgufFile) -> None:
    check_loadable(file)
    Tokenizer.from_metadata(file.metadata)


def _problem(check: Callable[[], None]) -> str:
    try:
        check()
    except UserError as error:
        return "\n".join(part for part in (error.title, error.sentence, error.hint) if part)
    return ""


def _text(file: GgufFile, key: str, default: str) -> str:
    value = file.metadata.get(key)
    return value if isinstance(value, str) and value else default


def _count(file: GgufFile, key: str) -> int:
    value = file.metadata.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def _vocabulary(file: GgufFile) -> int:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return 0 if tokens is None or isinstance(tokens, str | int | float) else len(tokens)


def _main_type(file: GgufFile) -> str:
    """The type most bytes are in."""
    n_bytes: Counter[str] = Counter()
    for info in file.tensors:
        n_bytes[info.type.label] += info.n_bytes
    return n_bytes.most_common(1)[0][0] if n_bytes else "no tensors"


def settled_snapshot(recorder: Recorder, plans: Mapping[int, PlanTable]) -> TraceSnapshot:
    """Everything recorded, once every split of every finished step has its time."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        snapshot = recorder.snapshot()
        if _is_settled(snapshot, plans) or time.monotonic() > deadline:
            return snapshot
        time.sleep(0.001)


def _is_settled(snapshot: TraceSnapshot, plans: Mapping[int, PlanTable]) -> bool:
    if snapshot.lost:
        return True
    expected = sum(
        len(plans[int(plan_id)].splits)
        for plan_id in snapshot.of_kind(SpanKind.STEP)["plan_id"]
        if int(plan_id) in plans
    )
    return len(snapshot.of_kind(SpanKind.SPLIT)) >= expected


def run_summary(
    prompt: str,
    prompt_tokens: Sequence[int],
    tokens: Sequence[int],
    text: str,
    reason: StopReason,
    snapshot: TraceSnapshot,
    plans: Mapping[int, PlanTable],
) -> RunSummary:
    """The sums of a run from its spans."""
    steps = snapshot.of_kind(SpanKind.STEP)
    prompt_steps = steps[steps["peer"] == StepKind.PROMPT]
    token_steps = steps[steps["peer"] == StepKind.TOKEN]
    prefill_ns = int((prompt_steps["end_ns"] - prompt_steps["start_ns"]).sum())
    decode_ns = token_steps["end_ns"] - token_steps["start_ns"]
    prompt_plan = int(prompt_steps["plan_id"][-1]) if len(prompt_steps) else -1
    token_plan = int(token_steps["plan_id"][-1]) if len(token_steps) else -1
    shown = [
        (batch, plans[plan_id])
        for batch, plan_id in ((Batch.PROMPT, prompt_plan), (Batch.TOKEN, token_plan))
        if plan_id in plans
    ]
    n_prompt = int(prompt_steps["bytes"].sum())
    return RunSummary(
        prompt=prompt,
        prompt_tokens=tuple(prompt_tokens),
        tokens=tuple(tokens),
        text=text,
        stop_reason=reason,
        prefill_tokens_per_s=_rate(n_prompt, prefill_ns),
        decode_tokens_per_s=_rate(len(decode_ns), int(decode_ns.sum())),
        prefill_ns=prefill_ns,
        decode_step_ns=tuple(int(ns) for ns in decode_ns),
        prompt_plan_id=prompt_plan,
        token_plan_id=token_plan,
        splits=tuple(row for batch, plan in shown for row in _splits(batch, plan, snapshot)),
        copies=tuple(row for batch, plan in shown for row in _copies(batch, plan, snapshot)),
    )


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0


def _times(spans: Spans, plan: PlanTable) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {}
    for span in spans[spans["plan_id"] == plan.plan_id]:
        times.setdefault(int(span["index"]), []).append(int(span["end_ns"] - span["start_ns"]))
    return times


def _splits(batch: Batch, plan: PlanTable, snapshot: TraceSnapshot) -> list[SplitTiming]:
    times = _times(snapshot.of_kind(SpanKind.SPLIT), plan)
    return [
        SplitTiming(
            batch=batch.value,
            id=split_id,
            backend=plan.devices[int(row["backend"])].name,
            start=int(row["start"]),
            stop=int(row["stop"]),
            n_nodes=int(row["stop"] - row["start"]),
            time_ns=tuple(times.get(split_id, ())),
        )
        for split_id, row in enumerate(plan.splits)
    ]


def _copies(batch: Batch, plan: PlanTable, snapshot: TraceSnapshot) -> list[CopyTiming]:
    times = _times(snapshot.of_kind(SpanKind.COPY), plan)
    return [
        CopyTiming(
            batch=batch.value,
            id=copy_id,
            name=plan.copy_name(copy_id),
            n_bytes=int(row["bytes"]),
            time_ns=tuple(times.get(copy_id, ())),
        )
        for copy_id, row in enumerate(plan.copies)
    ]


def trace_meta(plans: Mapping[int, PlanTable], options: Options, model: str) -> TraceMeta:
    """The names that spans refer to by number, for an export."""
    first = next(iter(plans.values()), None)
    lanes = () if first is None else first.devices
    return TraceMeta(
        lanes=tuple(LaneMeta(lane.name, lane.description, lane.type.value) for lane in lanes),
        plans={plan_id: _plan_meta(plan) for plan_id, plan in plans.items()},
        command=" ".join([model, *options.command_args()]),
        options=tuple(
            (spec.flags[0], str(getattr(options, spec.field))) for spec in OPTION_SPECS
        ),
    )


def _plan_meta(plan: PlanTable) -> PlanMeta:
    return PlanMeta(
        splits=tuple(
            SplitMeta(plan.split_name(i), int(row["stop"] - row["start"]))
            for i, row in enumerate(plan.splits)
        ),
        copies=tuple(
            CopyMeta(plan.copy_name(i), int(row["split"]), _producer(plan, int(row["slot"])))
            for i, row in enumerate(plan.copies)
        ),
        nodes=tuple(
            NodeMeta(
                plan.name[plan.slot(i)],
                plan.op[plan.slot(i)],
                int(plan.split[i]),
                plan.tag(plan.slot(i)),
            )
            for i in range(plan.n_nodes)
        ),
    )


def _producer(plan: PlanTable, slot: int) -> int | None:
    """The split that computed a tensor; None for weights and inputs."""
    node_id = slot - plan.n_leafs
    return int(plan.split[node_id]) if node_id >= 0 else None


def median_ns(times: Sequence[int]) -> int:
    """The median, rounded to a whole ns; 0 for none."""
    return round(float(np.median(times))) if times else 0
