"""GraphContext: a graph under construction; BuiltGraph: what comes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.core.graph import Graph, GraphBuilder
from engine.core.tensor import Flag, Tensor, shape4

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.plan import BatchShape
    from engine.core.types import TensorType
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.hparams_parts import Pooling
    from engine.model.kv_cache import CachePart, KvCache
    from engine.model.recurrent_state import RecurrentState


class InputKind(enum.StrEnum):
    """What the host writes before a batch; the value is llama.cpp's name of the tensor."""

    TOKENS = "inp_tokens"
    LAYER_TOKENS = ""
    """The tokens once more, for embeddings that each layer has for itself."""
    EMBEDDINGS = "inp_embd"
    POSITIONS = "inp_pos"
    K_IDXS = "attn_inp_k_idxs"
    V_IDXS = "attn_inp_v_idxs"
    KQ_MASK = "attn_inp_kq_mask"
    K_ROTATION = "attn_inp_k_rot"
    V_ROTATION = "attn_inp_v_rot"
    SELF_MASK = "self_kq_mask"
    CLS = "cls"
    """The token whose embedding is its text's."""
    MEAN = "mean"
    STATE_ROWS = "rs_s_copy"
    TEMPERATURE = "inp_attn_scale"
    OUT_IDS = "out_ids"


class InputKey(NamedTuple):
    """Which input: `part` is that of the cache, for inputs that each part has one of.

    Names alone would not do: both parts have an input called attn_inp_kq_mask.
    """

    kind: InputKind
    part: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BuiltGraph:
    """A graph and what its user needs of it.

    `layer_norms` are nodes that may be pinned to their layer's device (ARCH.md 1.3).
    """

    graph: Graph
    inputs: Mapping[InputKey, Tensor]
    logits: Tensor
    """What its user reads: logits, or embeddings."""
    layer_norms: tuple[tuple[Tensor, int], ...]
    attentions: tuple[tuple[Tensor, int], ...]
    """FLASH_ATTN_EXT nodes and their layers; empty without flash attention."""
    host_attentions: tuple[tuple[Tensor, int], ...]
    """CONT nodes that give the attention output, and their layers; empty with flash attention.

    They run on the CPU where the cache is not offloaded.
    """


@dataclass(slots=True, eq=False)
class GraphContext:
    """A graph under construction."""

    hparams: Hparams
    weights: Mapping[str, Tensor]
    cache: KvCache
    state: RecurrentState
    pooling: Pooling | None
    """Where embeddings are wanted: how those of the tokens become one; None: logits are."""
    shape: BatchShape
    flash_attn: bool
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    inputs: dict[InputKey, Tensor] = field(default_factory=dict)
    layer_norms: list[tuple[Tensor, int]] = field(default_factory=list)
    attentions: list[tuple[Tensor, int]] = field(default_factory=list)
    host_attentions: list[tuple[Tensor, int]] = field(default_factory=list)

    def layer(self, il: int) -> LayerHparams:
        """The numbers of a layer."""
        return self.hparams.layers[il]

    def is_last(self, il: int) -> bool:
        """Whether a layer is the last, after which only some rows are needed."""
        return il == self.hparams.n_layer - 1

    def weight(self, name: str, il: int = -1, suffix: str = "weight") -> Tensor:
        """A weight by its name without layer and suffix, such as `attn_q`; some have no suffix."""
        return self.weights[_weight_name(name, il, suffix)]

    def optional(self, name: str, il: int = -1, suffix: str = "weight") -> Tensor | None:
        """A weight or bias that a model may lack."""
        return self.weights.get(_weight_name(name, il, suffix))

    def input(
        self, kind: InputKind, tensor_type: TensorType, *ne: int, part: CachePart | None = None
    ) -> Tensor:
        """An input of the graph, made on first use."""
        key = InputKey(kind, part.index if part else 0)
        found = self.inputs.get(key)
        if found is None:
            found = Tensor(tensor_type, shape4(*ne), name=kind.value, flags=Flag.INPUT)
            self.inputs[key] = found
        return found

    def named(self, tensor: Tensor, name: str, il: int = -1) -> Tensor:
        """`tensor` with llama.cpp's callback name."""
        tensor.name = name if il < 0 else f"{name}-{il}"
        if name == "norm" and il >= 0:
            self.layer_norms.append((tensor, il))
        return tensor

    def keep(self, tensor: Tensor) -> Tensor:
        """`tensor`, whose memory nothing takes: llama.cpp's user may read it."""
        tensor.flags |= Flag.OUTPUT
        return tensor

    def finish(self, logits: Tensor) -> BuiltGraph:
        """The graph that ends in `logits`."""
        self.builder.expand(self.keep(logits))
        return BuiltGraph(
            self.builder.build(),
            self.inputs,
            logits,
            tuple(self.layer_norms),
            tuple(self.attentions),
            tuple(self.host_attentions),
        )


def _weight_name(name: str, il: int, suffix: str) -> str:
    whole = f"{name}.{suffix}" if suffix else name
    return whole if il < 0 else f"blk.{il}.{whole}"
