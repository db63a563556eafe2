"""Headers of small models of any architecture, made to order: no data behind them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine.core.options import Options
from engine.core.plan import Batch, BatchShape
from engine.core.types import TensorType
from engine.gguf.reader import GgufFile, open_gguf
from engine.gguf.writer import header_bytes
from engine.model.arch import find_architecture
from engine.model.planning import ModelPlanner, make_planner
from tests.engine.paper import parse_virtual

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from engine.model.blocks.graph_context import BuiltGraph
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind

N_EMBD, N_FF, N_HEAD, N_HEAD_KV, N_VOCAB, N_LAYER = 256, 512, 4, 2, 96, 2

NUMBERS: dict[str, Any] = {
    "context_length": 2048,
    "embedding_length": N_EMBD,
    "block_count": N_LAYER,
    "feed_forward_length": N_FF,
    "attention.head_count": N_HEAD,
    "attention.head_count_kv": N_HEAD_KV,
    "attention.layer_norm_rms_epsilon": 1e-5,
}

CPU = ("CPU:cpu:16384",)


def metadata_of(arch: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a header; a number that is None is left out.

    Names are an architecture's keys, but for those of the tokenizer.
    """
    found = {
        key if key.startswith("tokenizer.") else f"{arch}.{key}": value
        for key, value in {**NUMBERS, **numbers}.items()
        if value is not None
    }
    tokens = [f"t{i}" for i in range(N_VOCAB)]
    return {"general.architecture": arch, **found, "tokenizer.ggml.tokens": tokens}


def read(folder: Path, arch: str, **numbers: Any) -> Hparams:
    """The numbers as the architecture reads them; `__` in a name stands for a dot."""
    path = folder / "numbers.gguf"
    path.write_bytes(header_bytes(metadata_of(arch, _dotted(numbers)), []))
    with open_gguf(path) as file:
        return find_architecture(arch).read_hparams(file)


def shapes_of(
    kinds: Collection[WeightKind], absent: Collection[str], merged: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """The tensors of a file: what stands for others is there only if it is `merged`.

    A name stands for itself in every layer: `attn_qkv.weight`.
    """

    def is_in(name: str, names: Collection[str]) -> bool:
        return name in names or name.removeprefix(f"blk.{name.split('.')[1]}.") in names

    stand_for_others = {kind.unless for kind in kinds}
    chosen = {
        kind.name: kind
        for kind in kinds
        if not is_in(kind.name, absent)
        and (kind.name not in stand_for_others or is_in(kind.name, merged))
    }
    return {name: kind.ne for name, kind in chosen.items() if kind.unless not in chosen}


def made_header(
    folder: Path,
    arch: str,
    *,
    absent: Collection[str] = (),
    merged: Collection[str] = (),
    extra: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    whole: bool = False,
    **numbers: Any,
) -> GgufFile:
    """An opened header with every tensor that the architecture asks for but those `absent`.

    Of weights that can be in one tensor or in several, those `merged` are in one; it has `extra`
    ones too. A `whole` file has zeros behind it.
    """
    kinds = find_architecture(arch).weights(read(folder, arch, **numbers))
    shapes = shapes_of(kinds, absent, merged) | dict(extra)
    path = folder / "made.gguf"
    tensors = [(name, TensorType.F32, ne) for name, ne in shapes.items()]
    header = header_bytes(metadata_of(arch, _dotted(numbers)), tensors)
    path.write_bytes(header)
    if whole:
        with open_gguf(path) as file:
            n_bytes = max(info.end for info in file.tensors)
        path.write_bytes(header + bytes(n_bytes))
    return open_gguf(path)


def planner_of(file: GgufFile, devices: tuple[str, ...] = CPU, **options: Any) -> ModelPlanner:
    """A planner for devices on paper."""
    facts = [parse_virtual(line) for line in devices]
    return make_planner(file, facts, Options(**{"n_ctx": 512, **options}))


def built(
    folder: Path,
    arch: str,
    *,
    n_tokens: int = 3,
    absent: Collection[str] = (),
    merged: Collection[str] = (),
    options: dict[str, Any] | None = None,
    **numbers: Any,
) -> BuiltGraph:
    """The graph of a small batch on a CPU alone."""
    with made_header(folder, arch, absent=absent, merged=merged, **numbers) as file:
        planner = planner_of(file, **(options or {}))
        return planner.plan(Batch.PROMPT, BatchShape(n_tokens, 256, 1)).built


def names(graph: BuiltGraph, il: int | None = None) -> list[str]:
    """OP:name of the nodes; of one layer's where `il` is given, by their order."""
    nodes = graph.graph.nodes
    if il is not None:
        all_names = [node.name for node in nodes]
        following = f"norm-{il + 1}"
        stop = all_names.index(following) if following in all_names else len(nodes)
        nodes = nodes[all_names.index(f"norm-{il}") : stop]
    return [f"{node.op_desc}:{node.name}" for node in nodes]


def _dotted(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in numbers.items()}
