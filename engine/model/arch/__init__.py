"""One file a family, and the table of the architectures that this version has graphs for.

A family has three functions: `hparams` reads its keys, `weights` says what it asks of a file,
`build` makes the graph of one batch. To add one, write its file and a line in the table.

llama       llama, also with experts as in Mixtral
qwen2       like llama, other pairs in the rotation
qwen3       norms over the heads of Q and K
qwen3moe    the same, and experts in every layer
olmoe       norms over whole rows of Q and K; experts
phi3        Q, K and V from one matrix, gate and up from another
gptneox     layer norms, biases; attention and feed-forward beside one another
starcoder2  layer norms, biases, no gate
command_r   one norm a layer, which attention and feed-forward share
granite     llama with scales, also as granitemoe
glm4moe     dense layers, then experts; layers behind the last
deepseek2   keys and values unpacked from short rows (MLA); experts in groups
llama4      a window in chunks, layers without rotation, weighed input of experts
gpt_oss     sinks, a window, experts with biases
gemma3      sliding window, norms after attention and feed-forward
gemma4      heads of two sizes, layers that share keys, embeddings for each layer, experts
qwen35      linear attention with a delta rule, full attention in between; also as qwen35moe
falcon_h1   attention and mamba2 side by side
mamba       selective state spaces alone
bert        an encoder with embeddings of positions
nomic_bert  an encoder that rotates queries and keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelError
from engine.model.arch import (
    bert,
    command_r,
    deepseek2,
    falcon_h1,
    gemma3,
    gemma4,
    glm4moe,
    gpt_oss,
    gptneox,
    granite,
    llama,
    llama4,
    mamba,
    nomic_bert,
    olmoe,
    phi3,
    qwen2,
    qwen3,
    qwen3moe,
    qwen35,
    starcoder2,
)
from engine.model.arch_keys import ArchKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.gguf.reader import GgufFile
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


@dataclass(frozen=True, slots=True)
class Architecture:
    """What differs from one architecture to another."""

    name: str
    hparams: Callable[[ArchKeys], Hparams]
    weights: Callable[[Hparams], tuple[WeightKind, ...]]
    build: Callable[[GraphContext], BuiltGraph]

    def read_hparams(self, file: GgufFile) -> Hparams:
        """The numbers of a model; ModelError names the key that is missing or out of range."""
        return self.hparams(ArchKeys(file))


ARCHITECTURES: dict[str, Architecture] = {
    arch.name: arch
    for arch in (
        Architecture("llama", llama.hparams, llama.weights, llama.build),
        Architecture("qwen2", qwen2.hparams, qwen2.weights, qwen2.build),
        Architecture("qwen3", qwen3.hparams, qwen3.weights, qwen3.build),
        Architecture("qwen3moe", qwen3moe.hparams, qwen3moe.weights, qwen3moe.build),
        Architecture("olmoe", olmoe.hparams, olmoe.weights, olmoe.build),
        Architecture("phi3", phi3.hparams, phi3.weights, phi3.build),
        Architecture("gptneox", gptneox.hparams, gptneox.weights, gptneox.build),
        Architecture("starcoder2", starcoder2.hparams, starcoder2.weights, starcoder2.build),
        Architecture("command-r", command_r.hparams, command_r.weights, command_r.build),
        Architecture("granite", granite.hparams, granite.weights, granite.build),
        Architecture("granitemoe", granite.moe_hparams, granite.weights, granite.build),
        Architecture("glm4moe", glm4moe.hparams, glm4moe.weights, glm4moe.build),
        Architecture("deepseek2", deepseek2.hparams, deepseek2.weights, deepseek2.build),
        Architecture("llama4", llama4.hparams, llama4.weights, llama4.build),
        Architecture("gpt-oss", gpt_oss.hparams, gpt_oss.weights, gpt_oss.build),
        Architecture("gemma3", gemma3.hparams, gemma3.weights, gemma3.build),
        Architecture("gemma4", gemma4.hparams, gemma4.weights, gemma4.build),
        Architecture("bert", bert.hparams, bert.weights, bert.build),
        Architecture("nomic-bert", nomic_bert.hparams, nomic_bert.weights, nomic_bert.build),
        Architecture("mamba", mamba.hparams, mamba.weights, mamba.build),
        Architecture("qwen35", qwen35.hparams, qwen35.weights, qwen35.build),
        Architecture("qwen35moe", qwen35.moe_hparams, qwen35.weights, qwen35.build),
        Architecture("falcon-h1", falcon_h1.hparams, falcon_h1.weights, falcon_h1.build),
    )
}


def find_architecture(name: str) -> Architecture:
    """The architecture of that name; ModelError when this version has no graph for it."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    raise ModelError(
        f"This version has no graph for {name} models. They can be placed, not run.",
        "Weights are placed by their layer (blk.N), caches by the keys that are there; operations, "
        "splits and compute memory are missing.",
        f"It has graphs for {', '.join(ARCHITECTURES)}.",
    )
