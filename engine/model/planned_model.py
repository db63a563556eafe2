"""A model on devices, before any graph: where its weights and its cache are. Pure.

What a change of an option leaves as it was is kept: everything where nothing moves, with the graphs
that were built on it; else the file's facts, and the weights where they stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.options import Options, PoolingWish, Redo, redo_of
from engine.model.blocks.graph_context import GraphContext
from engine.model.generic import architecture_of
from engine.model.hparams_encoder import Pooling
from engine.model.kv_cache import KvCache, padded_cells, plan_cache
from engine.model.meta_device import check_shares
from engine.model.placement import ModelPlacement, backend_views, pipeline_copies, place_model
from engine.model.recurrent_state import RecurrentState, plan_state
from engine.model.weights import WeightKind, WeightSet, check_weights, plan_weights
from engine.sched.planner import KnownGraph, know_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import BackendView, DeviceFacts
    from engine.core.plan import BatchShape
    from engine.gguf.reader import GgufFile
    from engine.model.arch import Architecture
    from engine.model.blocks.graph_context import BuiltGraph
    from engine.model.hparams import Hparams


@dataclass(frozen=True, slots=True, eq=False)
class ModelFacts:
    """What a file says of its model; checked."""

    file: GgufFile
    arch: Architecture
    hparams: Hparams
    kinds: tuple[WeightKind, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlannableGraph:
    """A graph, and what all of its plans have in common."""

    built: BuiltGraph
    known: KnownGraph


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """Weights and cache with their homes, and the backends in priority order.

    `n_copies` are the slots of the pipeline, 1 without one. `n_ubatch` <= `n_batch` <= `n_ctx`.
    """

    facts: ModelFacts
    devices: tuple[DeviceFacts, ...]
    options: Options
    placement: ModelPlacement
    weights: WeightSet
    cache: KvCache
    state: RecurrentState
    backends: tuple[BackendView, ...]
    n_copies: int
    n_ctx: int
    n_batch: int
    n_ubatch: int
    _graphs: dict[tuple[BatchShape, bool], PlannableGraph] = field(default_factory=dict)

    @property
    def pooling(self) -> Pooling:
        """What becomes of the embeddings of a text's tokens: as asked, or as the file says."""
        if self.options.pooling is PoolingWish.MODEL:
            encoder = self.facts.hparams.encoder
            return Pooling.NONE if encoder is None else encoder.pooling
        return Pooling[self.options.pooling.name]

    def build(self, shape: BatchShape, *, flash_attn: bool, keep: bool = False) -> PlannableGraph:
        """The graph of a batch shape; with `keep` it is given again when it is asked for."""
        ready = self._graphs.get((shape, flash_attn))
        if ready is None:
            facts = self.facts
            ctx = GraphContext(
                facts.hparams, self.weights.tensors, self.cache, self.state, self.pooling, shape,
                flash_attn,
            )  # fmt: skip
            built = facts.arch.build(ctx)
            known = know_graph(built.graph, self.backends, n_layers=facts.hparams.n_layer)
            ready = PlannableGraph(built, known)
        if keep:
            self._graphs[shape, flash_attn] = ready
        return ready


def read_model(file: GgufFile) -> ModelFacts:
    """What the file says of its model; ModelError when it cannot be planned.

    A model without a graph here has its weights placed, and nothing else is known of it.
    """
    arch = architecture_of(file)
    hparams = arch.read_hparams(file)
    kinds = arch.weights(hparams)
    check_weights(file, kinds, hparams)
    return ModelFacts(file, arch, hparams, kinds)


def place(
    file: GgufFile,
    devices: Sequence[DeviceFacts],
    options: Options,
    *,
    before: PlannedModel | None = None,
) -> PlannedModel:
    """The model with these devices and options; what `before` had is used again where it holds.

    Raises:
        ModelError: the file cannot be planned.
        PlacementError: options and devices contradict each other, or a weight has no device.
    """
    if before is not None and (before.facts.file is not file or not _are_same(before, devices)):
        before = None
    if before is not None and _moves_nothing(before.options, options):
        return before
    facts = read_model(file) if before is None else before.facts
    hparams = facts.hparams
    check_shares(hparams.arch, options)
    placement = place_model(devices, options, n_layer=hparams.n_layer_all)
    n_ctx = padded_cells(options.n_ctx or hparams.n_ctx_train)
    n_batch = min(options.n_batch, n_ctx)
    n_ubatch = min(n_batch, options.n_ubatch)
    return PlannedModel(
        facts=facts,
        devices=tuple(devices),
        options=options,
        placement=placement,
        weights=(
            plan_weights(file, facts.kinds, placement, hparams)
            if before is None or before.placement != placement
            else before.weights
        ),
        cache=plan_cache(hparams, placement, options, n_ctx=n_ctx, n_ubatch=n_ubatch),
        state=plan_state(hparams, placement, options),
        backends=backend_views(placement),
        n_copies=pipeline_copies(placement, options),
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
    )


def _are_same(before: PlannedModel, devices: Sequence[DeviceFacts]) -> bool:
    """Whether the devices are those of before; rules are no part of their equality."""
    return before.devices == tuple(devices) and all(
        old.rules == new.rules for old, new in zip(before.devices, devices, strict=True)
    )


def _moves_nothing(before: Options, after: Options) -> bool:
    return Redo.CONTEXT not in redo_of(before, after)
