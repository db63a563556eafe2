"""A cause as a sentence for a person, with the tests behind it.

`**bold**` marks what matters in a sentence. The window and `python -m engine why` say the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType
from engine.core.placement import Cause, CauseKind
from engine.core.plan import Batch

if TYPE_CHECKING:
    from engine.core.table import PlanTable


class Test(enum.StrEnum):
    """A column of the candidates table."""

    __test__ = False  # Not a test class, whatever pytest thinks of its name.

    SUPPORTS_OP = "supports_op"
    SUPPORTS_BUFT = "supports_buft"
    OFFLOAD_OP = "offload_op"
    REACHED = "reached"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend and what it answered; None means it was not asked. The index is its priority."""

    backend_id: int
    device: str
    supports_op: bool | None
    supports_buft: bool | None
    offload_op: bool | None
    reached: bool | None
    first_failed: Test | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a tensor is where it is."""

    title: str
    node_id: int
    """-1 for a leaf."""
    facts: str
    device: str
    backend_id: int
    sentence: str
    step: str
    """The step of the pass row: "1", "2a" .. "5"; "0" for a pin."""
    decided: str
    neighbour: str
    tag: str
    candidates: tuple[Candidate, ...]
    shows_reached: bool


_DECIDED = {
    CauseKind.USER: "before the passes, a pin",
    CauseKind.PREALLOCATED: "pass 1, its home",
    CauseKind.PREALLOCATED_VIEW: "pass 1, its source's home",
    CauseKind.GRAPH_INPUT: "pass 1, graph input",
    CauseKind.OFFLOADED: "pass 1, op_offload",
    CauseKind.WEIGHT: "pass 1, its weight",
    CauseKind.GPU_DOWN: "pass 2a, GPU, downwards",
    CauseKind.GPU_UP: "pass 2b, GPU, upwards",
    CauseKind.REST_DOWN: "pass 2c, any device, downwards",
    CauseKind.REST_UP: "pass 2d, any device, upwards",
    CauseKind.BEST_OF_INPUTS: "pass 3, most inputs",
    CauseKind.UPGRADED: "pass 3, upgrade",
    CauseKind.VIEW_SOURCE: "pass 4, view of its source",
    CauseKind.FROM_CONSUMER: "pass 4, its reader",
    CauseKind.FIRST_SUPPORTED: "pass 4, first that can",
    CauseKind.INPUT_COPY: "pass 5, input copy",
    CauseKind.PIPELINE_COPY: "pass 6, pipeline copy",
    CauseKind.NONE: "nothing decided it",
}

_SWEEPS = {
    CauseKind.GPU_DOWN: "sweep 2a came down",
    CauseKind.GPU_UP: "sweep 2b came up",
    CauseKind.REST_DOWN: "sweep 2c came down",
    CauseKind.REST_UP: "sweep 2d came up",
}


def explain(table: PlanTable, slot: int) -> Explanation:
    """Why the tensor at `slot` is where it is."""
    cause = table.cause(slot)
    backend_id = int(table.backend[slot])
    node_id = slot - table.n_leafs
    return Explanation(
        title=table.name[slot],
        node_id=max(node_id, -1),
        facts=_facts(table, slot),
        device=table.devices[backend_id].name if backend_id >= 0 else "nowhere",
        backend_id=backend_id,
        sentence=_sentence(table, slot, cause),
        step=cause.kind.step,
        decided=_DECIDED[cause.kind],
        neighbour=_neighbour(table, cause),
        tag=cause.tag,
        candidates=_candidates(table, slot, cause),
        shows_reached=cause.kind in _SWEEPS,
    )


def _facts(table: PlanTable, slot: int) -> str:
    ne = [int(n) for n in table.ne[slot]]
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    return f"{table.op[slot]} · {table.type_label(slot)} {ne}"


def device_phrase(table: PlanTable, backend_id: int) -> str:
    """A device in a sentence: the CPU takes an article, others are names."""
    device = table.devices[backend_id]
    return "the CPU" if device.type is DeviceType.CPU else device.name


def _memory_phrase(table: PlanTable, slot: int) -> str:
    """Whose memory a tensor's home is."""
    home = int(table.home[slot])
    if home < 0:
        return "no memory yet"
    for backend_id, device in enumerate(table.devices):
        if table.supports_buft[backend_id, home] and device.buft == table.bufts[home]:
            return f"{device.name} memory"
    for backend_id, device in enumerate(table.devices):
        if table.supports_buft[backend_id, home]:
            return f"{device.name} memory"
    return f"{table.bufts[home]} memory"


def _sentence(table: PlanTable, slot: int, cause: Cause) -> str:
    if cause.kind is CauseKind.NONE:
        return "Nowhere because **nothing reads it**."
    where = device_phrase(table, int(table.backend[slot]))
    reason = _reason(table, slot, cause)
    return f"On {where} because {reason}."


def _reason(table: PlanTable, slot: int, cause: Cause) -> str:
    kind, neighbour = cause.kind, cause.neighbour
    if kind is CauseKind.USER:
        return _pin_reason(table, slot)
    if kind in (CauseKind.PREALLOCATED, CauseKind.PREALLOCATED_VIEW):
        return _home_reason(table, slot)
    if kind is CauseKind.GRAPH_INPUT:
        return "it is **an input of the graph**, which the host writes before each batch"
    if kind is CauseKind.OFFLOADED:
        return _offload_reason(table, slot, neighbour)
    if kind is CauseKind.WEIGHT:
        return _weight_reason(table, slot, neighbour)
    if kind in _SWEEPS:
        return (
            f"nothing held it anywhere, and {_SWEEPS[kind]} from **{table.name[neighbour]}**, "
            f"which runs on {device_phrase(table, int(table.backend[neighbour]))}"
        )
    if kind is CauseKind.BEST_OF_INPUTS:
        return "no neighbour's device can run it, and **most of its inputs** can be read from here"
    if kind is CauseKind.UPGRADED:
        return "it shares **the same memory** with a device of lower priority that had it before"
    if kind is CauseKind.VIEW_SOURCE:
        return f"it computes nothing: a view goes **where its source {table.name[neighbour]} is**"
    if kind is CauseKind.FROM_CONSUMER:
        return f"nothing placed it before, and **{table.name[neighbour]}** reads it here"
    if kind is CauseKind.FIRST_SUPPORTED:
        return f"no sweep reached it and this is **the first device with {table.op[slot]}**"
    return "it is **a copy** made for a split that cannot read the original"


def _pin_reason(table: PlanTable, slot: int) -> str:
    if table.op[slot] == "RMS_NORM":
        return (
            "llama.cpp **pins norms to their layer's device** when the batch is below 32 tokens "
            "or every layer is on a device"
        )
    return "it was **assigned by hand** before the passes"


def _home_reason(table: PlanTable, slot: int) -> str:
    memory = _memory_phrase(table, slot)
    base = int(table.view_src[slot])
    if base < 0:
        what = "weight" if table.is_weight[slot] else "buffer"
        return f"**its {what} is there**: its bytes are in {memory}"
    target = table.name[base]
    owner = f"layer {target.rpartition('_l')[2]}'s KV cache" if "cache_" in target else target
    verb = "sees part of" if table.is_view_op[slot] else "writes into"
    return f"it **{verb} {target}**, and {owner} lives in {memory}"


def _offload_reason(table: PlanTable, slot: int, weight: int) -> str:
    rows = _batch_words(table, slot)
    return (
        f"its weight **{table.name[weight]}** is in host memory and "
        f"{device_phrase(table, int(table.backend[slot]))} **asked for it**: op_offload is on and "
        f"the batch ({rows}) is large enough"
    )


def _weight_reason(table: PlanTable, slot: int, weight: int) -> str:
    memory = _memory_phrase(table, weight)
    reason = f"it **follows its weight {table.name[weight]}**, which is in {memory}"
    backend_id = int(table.backend[slot])
    if backend_id != len(table.devices) - 1 or backend_id == 0:
        return reason
    if not table.op_offload:
        return f"{reason}; op_offload is off"
    able = [b for b in range(backend_id) if table.supports_op[b, slot]]
    if able:
        name = table.devices[able[0]].name
        return f"{reason}; {name} does not want it for {_batch_words(table, slot)}"
    return f"{reason}; no device before it can run {table.op[slot]}"


def _batch_words(table: PlanTable, slot: int) -> str:
    if table.op[slot] == "GET_ROWS":
        return "a table look-up"
    n_tokens = table.shape.n_tokens
    return "a batch of 1" if table.batch is Batch.TOKEN else f"{n_tokens} tokens"


def _neighbour(table: PlanTable, cause: Cause) -> str:
    if cause.kind in _SWEEPS:
        node_id = cause.neighbour - table.n_leafs
        return f"#{node_id} {table.name[cause.neighbour]}"
    if cause.kind in (CauseKind.WEIGHT, CauseKind.OFFLOADED):
        return f"its weight, source {cause.i_src}"
    if cause.kind in (CauseKind.VIEW_SOURCE, CauseKind.FROM_CONSUMER):
        return table.name[cause.neighbour]
    if cause.kind in (CauseKind.PREALLOCATED, CauseKind.PREALLOCATED_VIEW):
        return "none: decided by its own buffer"
    return "none"


def _candidates(table: PlanTable, slot: int, cause: Cause) -> tuple[Candidate, ...]:
    return tuple(_candidate(table, slot, cause, b) for b in range(len(table.devices)))


def _candidate(table: PlanTable, slot: int, cause: Cause, backend_id: int) -> Candidate:
    chosen = backend_id == int(table.backend[slot])
    supports_op = bool(table.supports_op[backend_id, slot])
    supports_buft = _buft_answer(table, slot, cause, backend_id)
    offload = _offload_answer(table, slot, cause, backend_id)
    reached = chosen if cause.kind in _SWEEPS else None
    failed = None
    if not chosen:
        failed = _first_failed(supports_op, supports_buft, offload, reached)
    return Candidate(
        backend_id,
        table.devices[backend_id].name,
        supports_op,
        supports_buft,
        offload,
        reached,
        failed,
        chosen,
    )


def _first_failed(
    supports_op: bool | None,
    supports_buft: bool | None,
    offload: bool | None,
    reached: bool | None,
) -> Test | None:
    """The test that kept a device out; one that cannot read the weight may still ask for it."""
    if supports_op is False:
        return Test.SUPPORTS_OP
    if offload is not None:
        return None if offload else Test.OFFLOAD_OP
    if supports_buft is False:
        return Test.SUPPORTS_BUFT
    return Test.REACHED if reached is False else None


def _buft_answer(table: PlanTable, slot: int, cause: Cause, backend_id: int) -> bool | None:
    """supports_buft of the memory that decided: the tensor's own home, or its weight's."""
    owner = slot
    if cause.kind in (CauseKind.WEIGHT, CauseKind.OFFLOADED):
        owner = cause.neighbour
    elif cause.kind not in (CauseKind.PREALLOCATED, CauseKind.PREALLOCATED_VIEW):
        return None
    home = int(table.home[owner])
    return bool(table.supports_buft[backend_id, home]) if home >= 0 else None


def _offload_answer(table: PlanTable, slot: int, cause: Cause, backend_id: int) -> bool | None:
    """offload_op, where the weights rule asked for it."""
    if cause.kind not in (CauseKind.WEIGHT, CauseKind.OFFLOADED) or not table.op_offload:
        return None
    last = len(table.devices) - 1
    on_host = _buft_answer(table, slot, cause, last)
    asked_before = backend_id < last and bool(table.supports_op[backend_id, slot])
    if not on_host or not asked_before or _taken_before(table, slot, cause, last):
        return None
    chosen = int(table.backend[slot])
    if cause.kind is CauseKind.OFFLOADED and backend_id > chosen:
        return None
    return bool(table.offload_op[backend_id, slot])


def _taken_before(table: PlanTable, slot: int, cause: Cause, last: int) -> bool:
    """Whether a device before the last runs it from the weight's memory: then nobody is asked."""
    home = int(table.home[cause.neighbour])
    return any(table.supports_buft[b, home] and table.supports_op[b, slot] for b in range(last))
