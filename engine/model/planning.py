"""PlanSet of a header, devices and options. Pure: no device is touched, no byte is computed.

The plans are of the worst case that llama.cpp reserves for: full context, every row an output
(SCHED.md 9.3). A run plans its own shapes through `ModelPlanner.plan`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch, BatchShape, Plan, PlanSet
from engine.model.arch import Architecture, find_architecture
from engine.model.blocks import BuiltGraph, GraphContext
from engine.model.hparams import Hparams, architecture, read_hparams
from engine.model.kv_cache import KvCache, padded_cells, plan_cache
from engine.model.memory import ledger
from engine.model.placement import ModelPlacement, backend_views, place_model
from engine.model.weights import WeightSet, check_weights, plan_weights
from engine.sched.planner import plan_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.core.devices import BackendView, DeviceFacts
    from engine.core.tensor import Tensor
    from engine.gguf.reader import GgufFile

PIN_BELOW_TOKENS = 32
"""Norms stick to their layer below this many tokens (SCHED.md 9.5)."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGraph:
    """A plan and the graph it was made of."""

    plan: Plan
    built: BuiltGraph


@dataclass(eq=False)
class ModelPlanner:
    """Plans one model with one set of options, any batch shape. Cheap to make again."""

    hparams: Hparams
    arch: Architecture
    options: Options
    placement: ModelPlacement
    weights: WeightSet
    cache: KvCache
    backends: tuple[BackendView, ...]
    n_ctx: int
    n_batch: int
    n_ubatch: int
    plan_ids: Iterator[int]
    flash_attn: bool = False
    op_offload: bool = True
    reserved: dict[Batch, PlannedGraph] = field(default_factory=dict)

    def plan(self, batch: Batch, shape: BatchShape) -> PlannedGraph:
        """The plan of a batch shape."""
        return self._plan(batch, shape, flash_attn=self.flash_attn)

    def plan_set(self) -> PlanSet:
        """Both worst cases and the memory they need."""
        prompt, token = self.reserved[Batch.PROMPT].plan, self.reserved[Batch.TOKEN].plan
        layers = self.placement.layer_devices
        return PlanSet(
            options=self.options,
            plans={Batch.PROMPT: prompt, Batch.TOKEN: token},
            memory=ledger(
                self.hparams, self.placement, self.weights, self.cache, self.backends,
                (prompt, token),
            ),
            flash_attn=self.flash_attn,
            n_ctx=self.n_ctx,
            n_ubatch=self.n_ubatch,
            n_layers=self.hparams.n_layer,
            layer_devices=(self.placement.cpu.name, *(device.name for device in layers)),
        )  # fmt: skip

    def worst_shape(self, batch: Batch) -> BatchShape:
        """What llama.cpp reserves for: full context, every row an output."""
        n_tokens = min(self.n_ctx, self.n_ubatch) if batch is Batch.PROMPT else 1
        return BatchShape(n_tokens, self.cache.n_cells, n_tokens)

    def reserve(self) -> None:
        """Decide flash attention by a probe of one token, then plan both worst cases."""
        wanted = self.options.flash_attn
        shape = self.worst_shape(Batch.TOKEN)
        token = self._plan(Batch.TOKEN, shape, flash_attn=wanted is not FlashAttn.OFF)
        self.flash_attn = wanted is not FlashAttn.OFF
        if wanted is FlashAttn.AUTO and not self._attention_follows_layers(token):
            self.flash_attn = False
            token = self.plan(Batch.TOKEN, shape)
        prompt = self.plan(Batch.PROMPT, self.worst_shape(Batch.PROMPT))
        self.reserved = {Batch.PROMPT: prompt, Batch.TOKEN: token}

    def _attention_follows_layers(self, planned: PlannedGraph) -> bool:
        """Whether every FLASH_ATTN_EXT runs on its layer's device (SCHED.md 9.3)."""
        first = len(planned.plan.graph.leafs)
        slot_of = {node: first + i for i, node in enumerate(planned.plan.graph.nodes)}
        ids = planned.plan.trace.final.backend_ids
        return all(
            self.backends[ids[slot_of[node]]].device.name == self.placement.layer_devices[il].name
            for node, il in planned.built.attentions
        )

    def _plan(self, batch: Batch, shape: BatchShape, *, flash_attn: bool) -> PlannedGraph:
        ctx = GraphContext(self.hparams, self.weights.tensors, self.cache, shape, flash_attn)
        built = self.arch.build(ctx)
        plan = plan_graph(
            built.graph,
            self.backends,
            plan_id=next(self.plan_ids),
            batch=batch,
            shape=shape,
            op_offload=self.op_offload,
            pins=self._pins(built, shape),
            n_layers=self.hparams.n_layer,
        )
        return PlannedGraph(plan, built)

    def _pins(self, built: BuiltGraph, shape: BatchShape) -> dict[Tensor, int]:
        """Norms pinned to their layer's device (SCHED.md 9.5)."""
        if shape.n_tokens >= PIN_BELOW_TOKENS and not self.placement.is_fully_offloaded:
            return {}
        index = {view.device.name: i for i, view in enumerate(self.backends)}
        pins = {}
        for node, il in built.layer_norms:
            backend_id = index[self.placement.layer_devices[il].name]
            if self.backends[backend_id].rules.supports_op(node):
                pins[node] = backend_id
        return pins


def make_planner(
    file: GgufFile,
    devices: Sequence[DeviceFacts],
    options: Options,
    *,
    plan_ids: Iterator[int] | None = None,
) -> ModelPlanner:
    """Everything that planning any batch of this model needs.

    Plans take their ids from `plan_ids` (optional, 1 on); planners whose plans meet share it.

    Raises ModelError when the file cannot be planned, PlacementError when options or devices
    contradict each other.
    """
    arch_name = architecture(file.metadata)
    find_architecture(arch_name)
    hparams = read_hparams(file)
    arch = find_architecture(arch_name, n_expert=hparams.n_expert)
    check_weights(file, arch.weights, hparams)
    placement = place_model(devices, options, n_layer=hparams.n_layer)
    n_ctx = _context_size(options, hparams)
    n_batch = min(options.n_batch, n_ctx)
    planner = ModelPlanner(
        hparams=hparams,
        arch=arch,
        options=options,
        placement=placement,
        weights=plan_weights(file, arch.weights, placement, n_layer=hparams.n_layer),
        cache=plan_cache(hparams, placement, n_ctx),
        backends=backend_views(placement),
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_ubatch=min(n_batch, options.n_ubatch),
        plan_ids=itertools.count(1) if plan_ids is None else plan_ids,
        op_offload=options.op_offload,
    )
    planner.reserve()
    return planner


def _context_size(options: Options, hparams: Hparams) -> int:
    n_ctx = options.n_ctx or hparams.n_ctx_train
    # llama.cpp pads the context so that attention can work on whole blocks.
    return padded_cells(n_ctx)
