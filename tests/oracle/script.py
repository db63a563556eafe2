"""Run a script of the scheduler corpus on our scheduler and print what the recording printed.

The language is described in tests/data/README.md. Both recorded versions of ggml run through the
same scheduler, with another Behaviour.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backend.interface import Place
from engine.backends.null.reg import NullBuffer, NullReg
from engine.core import build
from engine.core.behaviour import CURRENT, PIPELINE_COPIES, Behaviour
from engine.core.devices import (
    BackendView,
    BufferFacts,
    BufferTypeFacts,
    BufferUsage,
    DeviceCaps,
    DeviceFacts,
    DeviceType,
    TableRules,
)
from engine.core.experts import pieces
from engine.core.graph import Graph, GraphBuilder
from engine.core.ops import FlashAttnParams, GluOp, Op, RopeParams, SoftMaxParams, UnaryOp
from engine.core.placement import CauseKind, cause_tag
from engine.core.plan import Batch, BatchShape, Plan
from engine.core.tensor import Flag, Tensor, shape4
from engine.core.types import TYPE_BY_LABEL
from engine.sched.execute import SplitRunner
from engine.sched.planner import plan_graph
from engine.sched.scheduler import AllocatedGraph, Scheduler
from engine.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = {"gpu": DeviceType.GPU, "igpu": DeviceType.IGPU, "accel": DeviceType.ACCEL}
TYPES["cpu"] = DeviceType.CPU


@dataclass
class WeightBuffer:
    """A pre-allocated buffer of a script: offsets grow in the order of its tensors."""

    facts: BufferFacts
    buffer: NullBuffer
    used: int = 0


@dataclass
class Script:
    """The state of one script while it runs; `run` gives the recorded lines."""

    behaviour: Behaviour = CURRENT
    calls: list[str] = field(default_factory=list)
    out: list[dict[str, Any]] = field(default_factory=list)
    bufts: dict[str, BufferTypeFacts] = field(default_factory=dict)
    devices: list[DeviceFacts] = field(default_factory=list)
    buffers: dict[str, WeightBuffer] = field(default_factory=dict)
    makers: list[Callable[[], None]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    resident: dict[Tensor, Place] = field(default_factory=dict)
    expands: list[str] = field(default_factory=list)
    assigned: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[int]] = field(default_factory=dict)
    op_offload: bool = True
    wanted: frozenset[str] | None = None
    allocated: AllocatedGraph | None = None
    plan: Plan | None = None
    silent: set[str] = field(default_factory=set)

    def run(self, text: str) -> list[dict[str, Any]]:
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if words:
                getattr(self, f"do_{words[0]}")(*words[1:])
        return self.out

    # Declarations.

    def do_buft(self, name: str, *pairs: str) -> None:
        keys = dict(pair.split("=") for pair in pairs)
        self.bufts[name] = BufferTypeFacts(
            name,
            alignment=int(keys["align"]),
            max_bytes=int(keys["max"]) if "max" in keys else None,
            is_host=keys["host"] == "1",
            pad_row_elems=int(keys.get("padq", 0)),
        )

    def do_backend(self, name: str, *pairs: str) -> None:
        keys = dict(pair.split("=") for pair in pairs)
        buft = self.bufts[keys["buft"]]
        supports = keys.get("supports", "")
        listed = frozenset(supports.split(",")) - {"host", ""} | {buft.name}
        ops = keys.get("ops", "*")
        rules = TableRules(
            ops=None if ops == "*" else frozenset(ops.split(",")),
            not_ops=frozenset(keys["noops"].split(",")) if "noops" in keys else frozenset(),
            bufts=listed,
            host_bufts="host" in supports.split(","),
            offload_min_batch=int(keys["offload"]) if int(keys.get("offload", -1)) >= 0 else None,
        )
        if keys.get("nosync") == "1":
            self.silent.add(name)
        flag = {key: keys.get(key) == "1" for key in ("async", "events", "cpyasync")}
        self.devices.append(
            DeviceFacts(
                name=name,
                description=name,
                type=TYPES[keys["type"]],
                reg="NULL",
                buft=buft,
                rules=rules,
                caps=DeviceCaps(asynchronous=flag["async"], events=flag["events"]),
                host_buft=self.bufts[keys["hostbuft"]] if "hostbuft" in keys else None,
                copies_async=flag["cpyasync"],
            )
        )

    def do_buffer(self, name: str, *pairs: str) -> None:
        keys = dict(pair.split("=") for pair in pairs)
        facts = BufferFacts(self.bufts[keys["buft"]], BufferUsage(keys["usage"]), name)
        clock = NullReg(()).clock
        buffer = NullBuffer(facts.buft, 0, facts.usage, clock, self.log_unnamed)
        self.buffers[name] = WeightBuffer(facts, buffer)

    def do_tensor(self, name: str, type_label: str, *words: str) -> None:
        ne = [int(word) for word in words if word.isdigit()]
        owner = next((word[4:] for word in words if word.startswith("buf=")), None)
        flags: int = Flag.NONE
        for word, flag in (("input", Flag.INPUT), ("output", Flag.OUTPUT)):
            flags |= flag if word in words else Flag.NONE
        kind = TYPE_BY_LABEL[type_label]

        def make() -> None:
            self.tensors[name] = Tensor(kind, shape4(*ne), name=name, flags=flags)

        if owner is None:
            self.makers.append(make)
            return
        home = self.buffers[owner]
        tensor = Tensor(kind, shape4(*ne), name=name, flags=flags, buffer=home.facts)
        self.weights[name] = tensor
        self.resident[tensor] = Place(home.buffer, home.used)
        align = home.facts.buft.alignment
        home.used += -(-home.facts.buft.alloc_bytes(tensor) // align) * align
        home.buffer.size = home.used

    def do_op(self, name: str, op: str, *words: str) -> None:
        def make() -> None:
            args = [self.tensors.get(w) or self.weights[w] for w in words if not _is_word(w)]
            numbers = [int(w) for w in words if w.lstrip("-").isdigit()]
            tensor = make_op(op, args, numbers)
            tensor.name = name
            for word, flag in (("input", Flag.INPUT), ("output", Flag.OUTPUT)):
                tensor.flags |= flag if word in words else Flag.NONE
            self.tensors[name] = tensor

        self.makers.append(make)

    def do_expand(self, name: str) -> None:
        self.expands.append(name)

    def do_assign(self, name: str, backend: str) -> None:
        self.assigned[name] = backend

    def do_clear_assign(self) -> None:
        self.assigned = {}

    def do_clear_graph(self) -> None:
        self.makers, self.expands, self.tensors = [], [], {}

    def do_sched(self, *pairs: str) -> None:
        keys = dict(pair.split("=") for pair in pairs)
        self.op_offload = keys.get("op_offload", "1") == "1"
        self.reg = NullReg(self.devices, self.log_unnamed)
        self.backends = [device.init_backend() for device in self.reg.devices()]
        bufts = [device.buffer_type() for device in self.reg.devices()]
        by_name = {buft.facts.name: buft for buft in bufts}
        for device in self.reg.devices():
            host = device.host_buffer_type()
            if host is not None:
                by_name[host.facts.name] = host
        if "cpubuft" in keys:
            bufts[-1] = by_name[keys["cpubuft"]]
        self.views = tuple(
            BackendView(facts.name, facts, buft.facts)
            for facts, buft in zip(self.devices, bufts, strict=True)
        )
        self.recorder = Recorder()
        self.scheduler = Scheduler(
            self.backends,
            bufts,
            self.recorder,
            n_copies=PIPELINE_COPIES if keys.get("parallel") == "1" else 1,
            behaviour=self.behaviour,
        )

    # Actions.

    def do_reserve(self) -> None:
        self.scheduler.reserve(self.make_plan(self.scheduler.pipeline.copy_slot))
        self.allocated = None
        self.out.append({"reserve": True, "sizes": list(self.scheduler.buffer_bytes())})

    def do_reserve_size(self) -> None:
        plan = self.make_plan(self.scheduler.pipeline.copy_slot, pinned=False)
        self.out.append({"reserve_size": list(self.scheduler.reserve_size(plan))})
        self.allocated = None

    def do_split(self) -> None:
        self.plan = self.make_plan(self.scheduler.pipeline.copy_slot)
        self.allocated = None

    def do_alloc(self) -> None:
        self.scheduler.reset()
        self.plan = self.make_plan(self.scheduler.pipeline.next_slot)
        self.allocated = self.scheduler.alloc_graph(self.plan, self.resident)
        self.out.append({"alloc": True})

    def do_compute(self) -> None:
        if self.allocated is None:
            self.do_alloc()
            self.out.pop()
        NamingRunner(self).run()
        self.out.append({"compute": 0})

    def do_callback(self, *names: str) -> None:
        self.wanted = frozenset(names) if names else None

    def do_sync(self) -> None:
        self.scheduler.synchronize()

    def do_reset(self) -> None:
        self.scheduler.reset()
        self.allocated = None

    def do_set(self, name: str, *values: str) -> None:
        self.values[name] = [int(value) for value in values]

    def do_cleartrace(self) -> None:
        self.calls.clear()

    def do_trace(self, tag: str) -> None:
        self.out.append({"trace": tag, "events": list(self.calls)})
        self.calls.clear()

    def do_dump(self) -> None:
        assert self.plan is not None
        self.out.append(self.dump(self.plan))

    # Helpers.

    def log_unnamed(self, line: str) -> None:
        if line.startswith("synchronize ") and line.split()[1] in self.silent:
            return
        self.calls.append(line)

    def build_graph(self) -> Graph:
        self.tensors = {}
        for make in self.makers:
            make()
        builder = GraphBuilder()
        for name in self.expands:
            builder.expand(self.tensors.get(name) or self.weights[name])
        return builder.build()

    def make_plan(self, copy_slot: int, *, pinned: bool = True) -> Plan:
        graph = self.build_graph()
        names = [view.name for view in self.views]
        pins = {
            self.tensors.get(name) or self.weights[name]: names.index(backend)
            for name, backend in self.assigned.items()
            if pinned
        }
        return plan_graph(
            graph,
            self.views,
            plan_id=0,
            batch=Batch.PROMPT,
            shape=BatchShape(1, 1, 1),
            op_offload=self.op_offload,
            pins=pins,
            n_copies=self.scheduler.pipeline.n_copies,
            copy_slot=copy_slot,
            behaviour=self.behaviour,
        )

    def dump(self, plan: Plan) -> dict[str, Any]:
        cut = plan.trace.cut
        ids, causes = cut.assignment.backend_ids, cut.assignment.causes
        n_leafs = len(plan.graph.leafs)
        slots = [*plan.run.leafs, *plan.run.nodes]
        tags = [cause.tag for cause in causes]
        for given in plan.trace.pipeline_inputs:
            tags[given.slot] = cause_tag(
                CauseKind.INPUT_COPY
                if self.behaviour.inputs_copied_when_read
                else CauseKind.PIPELINE_COPY
            )
        return {
            "n_splits": len(cut.splits),
            "n_copies": plan.n_copies,
            "cur_copy": plan.copy_slot,
            "leafs": [
                {"name": t.name, "backend": ids[i], "cause": tags[i], **self.spot(t)}
                for i, t in enumerate(plan.run.leafs)
            ],
            "nodes": [
                {
                    "name": t.name,
                    "op": t.op.value,
                    "backend": ids[n_leafs + i],
                    "cause": tags[n_leafs + i],
                    "src": [source.name for source in t.src],
                    **self.spot(t),
                }
                for i, t in enumerate(plan.run.nodes)
            ],
            "splits": [
                {
                    "backend": split.backend_id,
                    "start": split.start,
                    "end": split.stop,
                    "inputs": [
                        {
                            "name": slots[copy.slot].name,
                            "copies": [{"name": t.name, **self.spot(t)} for t in copy.tensors],
                        }
                        for copy in split.inputs
                    ],
                }
                for split in cut.splits
            ],
            "graph_inputs": [slots[given.slot].name for given in plan.trace.pipeline_inputs],
            "copy_nodes": [
                [t.name, t.op.value, i]
                for t, i in zip(plan.run.alloc.nodes, plan.run.alloc.node_ids, strict=True)
            ],
            "copy_leafs": [
                [t.name, i]
                for t, i in zip(plan.run.alloc.leafs, plan.run.alloc.leaf_ids, strict=True)
            ],
            "buffer_sizes": list(self.scheduler.buffer_bytes()),
        }

    def spot(self, tensor: Tensor) -> dict[str, Any]:
        if self.allocated is None:
            return {}
        place = self.allocated.place_of(tensor)
        return {"buf": place.buffer.buft.name, "off": place.offset}


class NamingRunner(SplitRunner):
    """Adds to the log of calls which tensors a transfer was about, as the recording did."""

    def __init__(self, script: Script) -> None:
        assert script.allocated is not None
        super().__init__(
            script.allocated,
            tuple(script.backends),
            script.scheduler.pipeline,
            script.recorder,
            0,
            behaviour=script.behaviour,
            callback=None if script.wanted is None else self.on_node,
        )
        self.script = script
        self.expert_offsets: list[int] = []

    def on_node(self, node_id: int, ask: bool) -> bool:
        name = self.graph.plan.run.nodes[node_id].name
        wanted = self.script.wanted or frozenset()
        answer = not ask or "*" in wanted or name in wanted
        self.script.calls.append(f"cb {name} {'ask' if ask else 'data'}={int(answer)}")
        return answer

    def _copy_input(self, split, copy):
        first = len(self.script.calls)
        source = self._source_of(copy)
        super()._copy_input(split, copy)
        self._name_calls(first, source.name, self._target_of(copy).name)
        self.expert_offsets = []

    def _copy_used_experts(self, split, copy, source):
        super()._copy_used_experts(split, copy, source)
        self.expert_offsets = [piece.start for piece in pieces(source, self._used_experts)]

    def _read_ids(self, ids, backend_id):
        first = len(self.script.calls)
        super()._read_ids(ids, backend_id)
        self._name_calls(first, ids.name, ids.name)
        name = ids.name.split("#")[1] if "#" in ids.name else ids.name
        count = ids.ne[0] * ids.ne[1]
        values = self.script.values.get(name, [0] * count)
        return np.array(values[:count], dtype=np.int32)

    def _name_calls(self, first: int, source: str, target: str) -> None:
        """Write tensor names into the calls logged since `first`."""
        calls = self.script.calls
        calls[first:] = [
            _named(line, source, target, self.expert_offsets) for line in calls[first:]
        ]


def _named(line: str, source: str, target: str, offsets: list[int]) -> str:
    """A logged call with the tensors it was about; unchanged where it has them or needs none."""
    if " off=" in line or " -> " in line:
        return line
    what, *words = line.split()
    if what == "set_tensor_async":
        return f"{what} {words[0]} {target} off={offsets.pop(0)} {words[1]}"
    if what == "set_tensor":
        return f"{what} {words[0]} {target} off=0 {words[1]}"
    if what in ("get_tensor", "get_tensor_async"):
        return f"{what} {words[0]} {source} off=0 {words[1]}"
    if what in ("cpy_tensor", "cpy_tensor_async"):
        return f"{what} {words[0]} {source} -> {target} {words[1]}"
    return line


def _is_word(word: str) -> bool:
    return word.lstrip("-").isdigit() or word in ("input", "output")


def make_op(op: str, a: list[Tensor], n: list[int]) -> Tensor:
    """The tensor that an `op` statement makes of tensors `a` and numbers `n`."""
    simple: dict[str, Callable[[], Tensor]] = {
        "MUL_MAT": lambda: build.mul_mat(a[0], a[1]),
        "MUL_MAT_ID": lambda: build.mul_mat_id(a[0], a[1], a[2]),
        "ADD": lambda: build.binary(Op.ADD, a[0], a[1]),
        "MUL": lambda: build.binary(Op.MUL, a[0], a[1]),
        "SUB": lambda: build.binary(Op.SUB, a[0], a[1]),
        "DIV": lambda: build.binary(Op.DIV, a[0], a[1]),
        "GET_ROWS": lambda: build.get_rows(a[0], a[1]),
        "SET_ROWS": lambda: build.set_rows(a[0], a[1], a[2]),
        "RMS_NORM": lambda: build.rms_norm(a[0], 1e-5),
        "SILU": lambda: build.unary(a[0], UnaryOp.SILU),
        "GELU": lambda: build.unary(a[0], UnaryOp.GELU),
        "SWIGLU": lambda: build.glu_split(a[0], a[1], GluOp.SWIGLU),
        "SCALE": lambda: build.scale(a[0], 0.5),
        "SOFT_MAX": lambda: build.soft_max(a[0], a[1] if len(a) > 1 else None, SoftMaxParams()),
        "ROPE": lambda: build.rope(
            a[0], a[1], a[2] if len(a) > 2 else None, RopeParams(a[0].ne[0])
        ),
        "CONT": lambda: build.cont(a[0]),
        "CPY": lambda: build.cpy(a[0], a[1]),
        "TRANSPOSE": lambda: build.transpose(a[0]),
        "PERMUTE": lambda: build.permute(a[0], (n[0], n[1], n[2], n[3])),
        "RESHAPE": lambda: build.reshape(a[0], *n),
        "VIEW": lambda: build.view(a[0], (n[0], n[1]), (a[0].nb[1],), n[2]),
        "VIEW1": lambda: build.view(a[0], (n[0],), (), n[1]),
        "VIEW3": lambda: build.view(a[0], (n[0], n[1], n[2]), (n[3], n[4]), n[5]),
        "FLASH_ATTN_EXT": lambda: build.flash_attn_ext(
            a[0], a[1], a[2], a[3] if len(a) > 3 else None, FlashAttnParams()
        ),
        "ARGSORT": lambda: build.argsort(a[0]),
        "SUM_ROWS": lambda: build.sum_rows(a[0]),
        "ADD_ID": lambda: build.add_id(a[0], a[1], a[2]),
    }
    return simple[op]()


def first_difference(script: str, recorded: str, behaviour: Behaviour = CURRENT) -> str:
    """Where our run of a script and its recording part; nothing when they are equal."""
    ours = Script(behaviour).run(script)
    theirs = [json.loads(line) for line in recorded.splitlines() if line.strip()]
    for i_line, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        found = _difference(our, their, f"line {i_line}")
        if found:
            return found
    return "" if len(ours) == len(theirs) else f"{len(ours)} lines, recorded {len(theirs)}"


def _difference(our: Any, their: Any, where: str) -> str:
    if isinstance(our, dict) and isinstance(their, dict):
        if our.keys() != their.keys():
            return f"{where}: keys {sorted(our)} recorded {sorted(their)}"
        pairs = [(our[key], their[key], f"{where}.{key}") for key in our]
    elif isinstance(our, list) and isinstance(their, list):
        if len(our) != len(their):
            return f"{where}: {len(our)} items, recorded {len(their)}: {our} {their}"
        pairs = [(o, t, f"{where}[{i}]") for i, (o, t) in enumerate(zip(our, their, strict=True))]
    else:
        return "" if our == their else f"{where}: {our!r}, recorded {their!r}"
    return next(filter(None, (_difference(*pair) for pair in pairs)), "")
