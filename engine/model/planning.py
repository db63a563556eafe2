"""PlanSet of a header, devices and options. Pure: no device is touched, no byte is computed.

The plans are of the worst case that llama.cpp reserves for: full context, every row an output
(SCHED.md 9.3). A run plans its own shapes through `ModelPlanner.plan`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.backend.alloc import aligned, needed_chunks
from engine.core.devices import BufferUsage
from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch, BatchShape, Plan, PlanSet
from engine.model.kv_cache import attention_wish
from engine.model.memory import ledger
from engine.model.placement import pipeline_obstacle
from engine.model.planned_model import PlannableGraph, PlannedModel, place
from engine.sched.planner import plan_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.core.devices import BackendView, BufferTypeFacts, DeviceFacts
    from engine.core.plan import AllocGraph
    from engine.core.tensor import Tensor
    from engine.gguf.reader import GgufFile
    from engine.model.blocks.graph_context import BuiltGraph
    from engine.model.hparams import Hparams
    from engine.model.kv_cache import KvCache
    from engine.model.placement import ModelPlacement
    from engine.model.weights import WeightSet

PIN_BELOW_TOKENS = 32
"""Norms stick to their layer below this many tokens (SCHED.md 9.5)."""


@dataclass(frozen=True, eq=False)
class GraphMemory:
    """What a planned graph needs of the compute buffers; worked out on first use."""

    graph: AllocGraph
    bufts: tuple[BufferTypeFacts, ...]

    @functools.cached_property
    def chunk_bytes(self) -> tuple[tuple[int, ...], ...]:
        """Bytes of each chunk of each backend's buffer."""
        return needed_chunks(self.graph, self.bufts)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGraph:
    """A plan and the graph it was made of."""

    plan: Plan
    built: BuiltGraph
    memory: GraphMemory

    def again(self, plan_id: int, *, op_offload: bool) -> PlannedGraph:
        """The same under another op_offload, which changes nothing in it."""
        return replace(self, plan=replace(self.plan, plan_id=plan_id, op_offload=op_offload))


@dataclass(eq=False)
class ModelPlanner:
    """Plans one model with one set of options, any batch shape."""

    model: PlannedModel
    options: Options
    plan_ids: Iterator[int]
    op_offload: bool
    flash_attn: bool = False
    reserved: dict[Batch, PlannedGraph] = field(default_factory=dict)

    @property
    def hparams(self) -> Hparams:
        """The numbers of the model."""
        return self.model.facts.hparams

    @property
    def placement(self) -> ModelPlacement:
        """Devices and layers."""
        return self.model.placement

    @property
    def weights(self) -> WeightSet:
        """Weights with their homes."""
        return self.model.weights

    @property
    def cache(self) -> KvCache:
        """The cache with its homes."""
        return self.model.cache

    @property
    def backends(self) -> tuple[BackendView, ...]:
        """The backends in priority order."""
        return self.model.backends

    @property
    def n_ctx(self) -> int:
        """Tokens the cache holds."""
        return self.model.n_ctx

    @property
    def n_batch(self) -> int:
        """Tokens that may be handed over at once."""
        return self.model.n_batch

    @property
    def n_ubatch(self) -> int:
        """Tokens in one graph."""
        return self.model.n_ubatch

    @property
    def pipeline_obstacle(self) -> str:
        """Why devices do not work as a pipeline, as a clause; empty when they do."""
        obstacle = pipeline_obstacle(self.placement, self.options)
        if obstacle or self.model.n_copies > 1:
            return obstacle
        return f"there is no memory for {self.options.n_copies} graphs at once"

    @property
    def max_nodes(self) -> int:
        """Nodes that llama.cpp makes room for in its scheduler."""
        n_tokens = min(self.n_ctx, self.n_ubatch)
        return max_nodes(self.hparams.arch, self.weights.n_tensors, n_tokens)

    def plan(
        self, batch: Batch, shape: BatchShape, *, flash_attn: bool | None = None, copy_slot: int = 0
    ) -> PlannedGraph:
        """The plan of a batch shape; `flash_attn` (optional) is what was decided."""
        flash = self.flash_attn if flash_attn is None else flash_attn
        ready = self.model.build(shape, flash_attn=flash)
        return self._plan(ready, batch, shape, copy_slot)

    def plan_set(self, *, exchange_bytes: int = 0) -> PlanSet:
        """Both worst cases and the memory they need, with what joined devices exchange through."""
        prompt, token = self.reserved[Batch.PROMPT], self.reserved[Batch.TOKEN]
        # Layers behind the last have a device, and nothing on it.
        *layers, output = self.placement.layer_devices
        layers = [*layers[: self.hparams.n_layer], output]
        # llama.cpp reserves the prompt's graph again after the token's (SCHED.md 9.3).
        needs = [planned.memory.chunk_bytes for planned in (prompt, token, prompt)]
        return PlanSet(
            options=self.options,
            plans={Batch.PROMPT: prompt.plan, Batch.TOKEN: token.plan},
            memory=ledger(self.model, needs, exchange_bytes=exchange_bytes),
            flash_attn=self.flash_attn,
            n_ctx=self.n_ctx,
            n_ubatch=self.n_ubatch,
            n_layers=self.hparams.n_layer,
            layer_devices=(self.placement.cpu.name, *(device.name for device in layers)),
            n_copies=self.model.n_copies,
            pipeline_obstacle=self.pipeline_obstacle,
            device_uses=self.placement.uses,
        )

    def worst_shape(self, batch: Batch) -> BatchShape:
        """What llama.cpp reserves for: full context, every row an output."""
        n_tokens = min(self.n_ctx, self.n_ubatch) if batch is Batch.PROMPT else 1
        n_texts = self.model.n_texts
        n_tokens = aligned(n_tokens, n_texts)
        n_seen = self.cache.n_cells if self.hparams.has_cache else n_tokens
        return BatchShape(
            n_tokens, n_seen, n_tokens, n_seqs=n_texts, clears_state=self.hparams.has_state
        )

    def run_shape(self, n_tokens: int, n_past: int) -> BatchShape:
        """The shape of a batch after `n_past` tokens whose last row gives logits.

        Embeddings, where they are wanted, are of all rows, which are one text.
        """
        if self.hparams.encoder is not None:
            return BatchShape(n_tokens, n_tokens, n_tokens)
        n_kv = [part.n_kv(n_past + n_tokens) for part in self.cache.parts]
        return self.shape_seeing(n_tokens, n_kv, n_past)

    def shape_seeing(self, n_tokens: int, n_kv: Sequence[int], n_past: int) -> BatchShape:
        """The shape of a batch that sees so many cells of each part of the cache."""
        n_full, *n_swa = n_kv
        return BatchShape(
            n_tokens,
            n_full,
            1 if self.model.pooling is None else n_tokens,
            n_kv_swa=n_swa[0] if n_swa else 0,
            clears_state=self.hparams.has_state and n_past == 0,
        )

    def reserve(self, before: ModelPlanner | None = None) -> None:
        """Decide flash attention by a probe of one token, then plan both worst cases.

        Plans of `before` (optional), which has the same model, are used again where they hold.

        Raises PlacementError for what no device can run.
        """
        known = {} if before is None else before.still_valid(op_offload=self.op_offload)
        wanted = attention_wish(self.options)
        self.flash_attn = wanted is not FlashAttn.OFF
        token = self._worst(Batch.TOKEN, known)
        if wanted is FlashAttn.AUTO and not self._attention_follows_layers(token):
            self.flash_attn = False
            token = self._worst(Batch.TOKEN, known)
        self.reserved = {Batch.PROMPT: self._worst(Batch.PROMPT, known), Batch.TOKEN: token}

    def without_pipeline(self) -> ModelPlanner:
        """The same model, one graph after the other; its worst cases are planned anew."""
        model = replace(self.model, n_copies=1)
        planner = replace(self, model=model, reserved={})
        planner.reserve()
        return planner

    def still_valid(self, *, op_offload: bool) -> dict[tuple[Batch, bool], PlannedGraph]:
        """The worst cases that hold with this op_offload too, by batch and flash attention."""
        return {
            (batch, self.flash_attn): planned
            for batch, planned in self.reserved.items()
            if planned.plan.op_offload == op_offload or not self._is_offload_wanted(planned)
        }

    def _is_offload_wanted(self, planned: PlannedGraph) -> bool:
        """Whether a device would take an operation on host weights; else nothing changes."""
        rules = [view.rules for view in self.backends[:-1]]
        return any(
            _reads_host_weight(node) and any(rule.offload_op(node) for rule in rules)
            for node in planned.plan.graph.nodes
        )

    def _worst(self, batch: Batch, known: dict[tuple[Batch, bool], PlannedGraph]) -> PlannedGraph:
        """The plan of a worst case, whose graph is kept: every set of options has it."""
        old = known.get((batch, self.flash_attn))
        if old is not None:
            is_same = old.plan.op_offload == self.op_offload
            return old if is_same else old.again(next(self.plan_ids), op_offload=self.op_offload)
        shape = self.worst_shape(batch)
        ready = self.model.build(shape, flash_attn=self.flash_attn, keep=True)
        return self._plan(ready, batch, shape)

    def _attention_follows_layers(self, planned: PlannedGraph) -> bool:
        """Whether every FLASH_ATTN_EXT runs on its layer's device (SCHED.md 9.3)."""
        first = len(planned.plan.graph.leafs)
        slot_of = {node: first + i for i, node in enumerate(planned.plan.graph.nodes)}
        ids = planned.plan.trace.final.backend_ids
        return all(
            self.backends[ids[slot_of[node]]].device.name == self.placement.layer_devices[il].name
            for node, il in planned.built.attentions
        )

    def _plan(
        self, ready: PlannableGraph, batch: Batch, shape: BatchShape, copy_slot: int = 0
    ) -> PlannedGraph:
        plan = plan_graph(
            ready.built.graph,
            self.backends,
            plan_id=next(self.plan_ids),
            batch=batch,
            shape=shape,
            op_offload=self.op_offload,
            pins=self._pins(ready.built, shape),
            n_copies=self.model.n_copies,
            copy_slot=copy_slot,
            known=ready.known,
        )
        bufts = tuple(view.buft for view in self.backends)
        return PlannedGraph(plan, ready.built, GraphMemory(plan.run.alloc, bufts))

    def _pins(self, built: BuiltGraph, shape: BatchShape) -> dict[Tensor, int]:
        """What llama.cpp puts on a backend itself (SCHED.md 9.5)."""
        pins: dict[Tensor, int] = {}
        if shape.n_tokens < PIN_BELOW_TOKENS or self.placement.is_fully_offloaded:
            index = {view.device.name: i for i, view in enumerate(self.backends)}
            for node, il in built.layer_norms:
                backend_id = index[self.placement.layer_devices[il].name]
                if self.backends[backend_id].rules.supports_op(node):
                    pins[node] = backend_id
        if not self.options.offload_kqv:
            cpu = len(self.backends) - 1
            pins |= dict.fromkeys((node for node, _ in built.host_attentions), cpu)
        return pins


def _reads_host_weight(node: Tensor) -> bool:
    """Whether a source is a weight in host memory: only such a node can be offloaded."""
    return any(
        source.buffer is not None
        and source.buffer.usage is BufferUsage.WEIGHTS
        and source.buffer.buft.is_host
        for source in node.src
    )


def make_planner(
    file: GgufFile,
    devices: Sequence[DeviceFacts],
    options: Options,
    *,
    plan_ids: Iterator[int] | None = None,
    before: ModelPlanner | None = None,
) -> ModelPlanner:
    """Everything that planning any batch of this model needs.

    Plans take their ids from `plan_ids` (optional, those of `before`, or 1 on); planners whose
    plans meet share it. `before` (optional) is another planner of the calling thread: what it has
    and the options leave as it was is used again.

    Raises ModelError when the file cannot be planned, PlacementError when options or devices
    contradict each other or no device runs something.
    """
    if plan_ids is None:
        plan_ids = itertools.count(1) if before is None else before.plan_ids
    model = place(file, devices, options, before=None if before is None else before.model)
    planner = ModelPlanner(
        model=model,
        options=options,
        plan_ids=plan_ids,
        op_offload=options.op_offload,
    )
    has_same_model = before is not None and before.model is model
    planner.reserve(before if has_same_model else None)
    return planner


_MANY_NODES = {
    "kimi-k3": (160, 64),
    "glm5-next": (160, 64),
    "hrm_text": (80, 64),
} | dict.fromkeys(
    (
        "qwen3next", "kimi-linear", "bailingmoe3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4",
        "nanbeige", "minimax-01", "minimax-m3", "hy_v4",
    ),
    (40, 32),
)  # fmt: skip
"""Architectures with many nodes: how many a token, and how many a weight (lc:2396-2425)."""


def max_nodes(arch: str, n_tensors: int, n_tokens: int) -> int:
    """Nodes that llama.cpp makes room for, by architecture, loaded weights and tokens."""
    if arch in _MANY_NODES:
        per_token, per_tensor = _MANY_NODES[arch]
        return max(per_token * n_tokens, per_tensor * n_tensors)
    return max(1024, 8 * n_tensors)
