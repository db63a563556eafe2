"""A model on devices, before any graph: where its weights and its cache are. Pure.

What a change of an option leaves as it was is kept: everything where nothing moves, with the graphs
that were built on it; else the file's facts, and the weights where they stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.options import Options, PoolingWish, Redo, redo_of
from engine.errors import ModelError
from engine.model.blocks.graph_context import GraphContext
from engine.model.generic import architecture_of
from engine.model.hparams_parts import Pooling
from engine.model.kv_cache import KvCache, padded_cells, plan_cache
from engine.model.meta_device import check_shares
from engine.model.placement import ModelPlacement, backend_views, pipeline_copies, place_model
from engine.model.recurrent_state import RecurrentState, plan_state
from engine.model.shards import held_shares, member_shares, plan_shards
from engine.model.weights import WeightKind, WeightSet, check_weights, plan_weights
from engine.sched.planner import KnownGraph, know_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import BackendView, DeviceFacts
    from engine.core.plan import BatchShape
    from engine.core.shards import MemberShare, Shard
    from engine.core.tensor import Tensor
    from engine.gguf.reader import GgufFile
    from engine.model.arch import Architecture
    from engine.model.blocks.graph_context import BuiltGraph
    from engine.model.hparams import Hparams


EMBEDDED_TEXTS = 256


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
    `shards` are there for a device that joins others: how weights and caches are divided.
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
    shards: Mapping[Tensor, Shard]
    _graphs: dict[tuple[BatchShape, bool], PlannableGraph] = field(default_factory=dict)

    @property
    def joined(self) -> DeviceFacts | None:
        """The device that joins the model's devices (-sm tensor); None where none does."""
        return self.placement.joined

    @property
    def member_shares(self) -> tuple[MemberShare, ...]:
        """What each member of the joined device holds of weights and caches."""
        joined = self.joined
        if joined is None:
            return ()
        cpu, wanted = self.placement.cpu, self.options.tensor_split
        shares = member_shares(joined.members, cpu, wanted)
        held = [weight.tensor for buffer in self.weights.buffers for weight in buffer.weights]
        for kept in (*self.cache.buffers, *self.state.buffers):
            held += kept.tensors
        here = [x for x in held if x.home is not None and x.home.buft == joined.buft]
        return held_shares(joined.members, shares, here, self.shards)

    @property
    def pooling(self) -> Pooling | None:
        """What becomes of the embeddings of a text's tokens; None where logits are wanted."""
        return wanted_pooling(self.facts.hparams, self.options)

    @property
    def n_texts(self) -> int:
        """Texts that graphs make room for.

        llama.cpp's embedding tool has 256; states and windows are planned for one alone.
        """
        hparams = self.facts.hparams
        is_single = self.pooling is None or hparams.has_state or hparams.window is not None
        return 1 if is_single else EMBEDDED_TEXTS

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


def wanted_pooling(hparams: Hparams, options: Options) -> Pooling | None:
    """How embeddings become one, as asked or as the file says; None for a model that writes text.

    ModelError for a model that ranks texts, unless something else is asked of it.
    """
    if options.pooling is not PoolingWish.MODEL:
        return Pooling[options.pooling.name]
    if hparams.pooling is Pooling.RANK:
        raise ModelError(
            "This model ranks texts. This version does not.",
            f"{hparams.arch}.pooling_type is 4 (rank): a classifier makes scores of embeddings.",
            "For the embeddings themselves choose a pooling: --pooling mean, cls, last or none.",
        )
    if hparams.encoder is not None:
        return hparams.pooling or Pooling.NONE
    return hparams.pooling or None


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
    before = _of_same_model(before, file, devices)
    if before is not None and _moves_nothing(before.options, options):
        return before
    facts = read_model(file) if before is None else before.facts
    hparams = facts.hparams
    check_shares(hparams.arch, options)
    wanted_pooling(hparams, options)
    placement = place_model(devices, options, n_layer=hparams.n_layer_all)
    n_ctx, n_batch, n_ubatch = _token_counts(hparams, options)
    weights = _weights_on(placement, facts, before)
    cache = plan_cache(hparams, placement, options, n_ctx=n_ctx, n_ubatch=n_ubatch)
    return PlannedModel(
        facts=facts,
        devices=tuple(devices),
        options=options,
        placement=placement,
        weights=weights,
        cache=cache,
        state=plan_state(hparams, placement, options),
        backends=backend_views(placement),
        n_copies=pipeline_copies(placement, options),
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        shards=_shards(placement, weights, cache, facts, options),
    )


def _shards(
    placement: ModelPlacement,
    weights: WeightSet,
    cache: KvCache,
    facts: ModelFacts,
    options: Options,
) -> Mapping[Tensor, Shard]:
    joined = placement.joined
    if joined is None:
        return {}
    shares = member_shares(joined.members, placement.cpu, options.tensor_split)
    return plan_shards(weights, cache, facts.hparams, shares)


def _of_same_model(
    before: PlannedModel | None, file: GgufFile, devices: Sequence[DeviceFacts]
) -> PlannedModel | None:
    if before is None or before.facts.file is not file:
        return None
    return before if _are_same(before.devices, devices) else None


def _token_counts(hparams: Hparams, options: Options) -> tuple[int, int, int]:
    """Tokens of the context, of a batch, and of a graph."""
    n_ctx = padded_cells(options.n_ctx or hparams.n_ctx_train)
    n_batch = min(options.n_batch, n_ctx)
    return n_ctx, n_batch, min(n_batch, options.n_ubatch)


def _weights_on(
    placement: ModelPlacement, facts: ModelFacts, before: PlannedModel | None
) -> WeightSet:
    """The weights on these devices: those of `before` where nothing moves."""
    if before is not None and _is_same_placement(before.placement, placement):
        return before.weights
    return plan_weights(facts.file, facts.kinds, placement, facts.hparams)


def _are_same(before: Sequence[DeviceFacts], devices: Sequence[DeviceFacts]) -> bool:
    """Whether the devices are those of before; rules are no part of their equality."""
    return tuple(before) == tuple(devices) and all(
        old.rules == new.rules for old, new in zip(before, devices, strict=True)
    )


def _is_same_placement(before: ModelPlacement, placement: ModelPlacement) -> bool:
    return before == placement and _are_same(before.known, placement.known)


def _moves_nothing(before: Options, after: Options) -> bool:
    return Redo.CONTEXT not in redo_of(before, after)
