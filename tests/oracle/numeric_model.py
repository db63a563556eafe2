"""Compare one model with its recording: nodes, then logits or embeddings, and tokens."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.options import FlashAttn, Options
from engine.errors import UserError
from engine.gguf.reader import open_gguf
from engine.machine import Machine
from engine.text.tokenizer import Tokenizer
from engine.trace.records import StepKind
from tests.oracle.graph_text import planned_graph
from tests.oracle.node_values import loaded
from tests.oracle.numeric_nodes import (
    QUANTIZED_BAR,
    bar_of,
    compare_dump,
    judge,
    n_recorded,
    recorded_tokens,
)
from tests.oracle.numeric_outputs import OutputResult, compare_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from engine.core.devices import DeviceRules
    from engine.gguf.reader import GgufFile
    from tests.oracle.numeric_folder import NodeDump, Output, RecordedModel, Setting
    from tests.oracle.numeric_nodes import DumpResult, NodeResult

CPU = "CPU"
NO_GPU = "none"
"""The list of devices that leaves everything to the CPU."""


@dataclass
class ModelResult:
    """What came of one model. `outside` are nodes that differ, `drifted` those that are right from
    recorded sources; `n_lost` counts nodes that did not run. `faults` say what else differs.
    """

    name: str
    is_absent: bool = False
    """Whether there is no file of the model, so that nothing was compared."""
    n_nodes: int = 0
    n_lost: int = 0
    outside: list[NodeResult] = field(default_factory=list)
    drifted: list[NodeResult] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no difference, and worth knowing."""

    @property
    def n_different(self) -> int:
        """Nodes outside of the bar."""
        return len(self.outside) + self.n_lost

    @property
    def is_equal(self) -> bool:
        """Whether nothing at all differs."""
        return not (self.n_different or self.tokens or self.faults)


def compare_model(recorded: RecordedModel, device: str = CPU) -> ModelResult:
    """Run a model as it was recorded; what cannot run is a fault, but a file that is absent."""
    if recorded.model is None:
        return ModelResult(recorded.name, is_absent=True)
    result = ModelResult(recorded.name)
    folders = [folder for dump in recorded.dumps() for folder in dump.folders]
    result.n_nodes = sum(map(n_recorded, folders))
    with open_gguf(recorded.model) as file:
        comparison = _Comparison(recorded.model, file, device, result)
        for dump in recorded.dumps():
            comparison.compare_nodes(dump)
        comparison.compare_outputs(recorded.outputs())
    return result


@dataclass
class _Comparison:
    """Gathers the result of one model on one device."""

    path: Path
    file: GgufFile
    device: str
    result: ModelResult

    def compare_nodes(self, dump: NodeDump) -> None:
        """Compare a prompt's nodes and the next token's: see `numeric_nodes`."""
        try:
            self._name_missing_kernels(dump)
            whole = list(self._run(dump, forced=False))
        except UserError as error:
            self.result.n_lost += sum(map(n_recorded, dump.folders))
            self._add_fault(str(error))
            return
        self.result.faults += [fault for part in whole for fault in part.faults]
        bar = bar_of(self.file)
        if any(node.error > bar for part in whole for node in part.nodes):
            single = list(self._run(dump, forced=True))
            for part, from_recorded in zip(whole, single, strict=True):
                outside, drifted = judge(part, from_recorded, bar)
                self.result.outside += outside
                self.result.drifted += drifted

    def compare_outputs(self, outputs: list[Output]) -> None:
        """Compare logits, tokens and embeddings; a model is loaded once for each setting."""
        ordered = sorted(outputs, key=lambda output: output.setting)
        bar = bar_of(self.file)
        for setting, group in itertools.groupby(ordered, key=lambda output: output.setting):
            try:
                with loaded(self.path, self._options(setting)) as context:
                    for output in group:
                        found = compare_output(
                            context, output, bar=bar, is_quantized=bar == QUANTIZED_BAR
                        )
                        self.result.outputs.append(found)
            except UserError as error:
                self._add_fault(str(error))
        self.result.tokens += [found.tokens for found in self.result.outputs if found.tokens]
        self.result.faults += [fault for found in self.result.outputs for fault in found.faults]
        self.result.tokens += self._different_prompts(outputs)

    def _options(self, setting: Setting) -> Options:
        """What the recordings were made with: one thread, no repacking."""
        return Options(
            devices=(NO_GPU if self.device == CPU else self.device,),
            n_ctx=setting.n_ctx,
            flash_attn=setting.flash_attn,
            pooling=setting.pooling,
            repack=False,
            n_threads=1,
        )

    def _run(self, dump: NodeDump, *, forced: bool) -> Iterator[DumpResult]:
        with loaded(self.path, self._options(dump.setting)) as context:
            for folder, kind in zip(dump.folders, (StepKind.PROMPT, StepKind.TOKEN), strict=False):
                yield compare_dump(context, self.file, folder, kind, forced=forced)

    def _name_missing_kernels(self, dump: NodeDump) -> None:
        """Note the operations of a graph that the device cannot compute."""
        rules = _rules_of(self.device)
        for folder in dump.folders:
            tokens = recorded_tokens(folder, self.file)
            graph = planned_graph(
                self.path,
                len(tokens),
                flash_attn=dump.setting.flash_attn is FlashAttn.ON,
                n_ctx=dump.setting.n_ctx,
            )
            missing = Counter(node.op_desc for node in graph.nodes if not rules.supports_op(node))
            self._note_missing(", ".join(f"{op} ({n})" for op, n in missing.items()))

    def _note_missing(self, ops: str) -> None:
        note = f"{self.device} has no kernel for {ops}"
        if ops and note not in self.result.notes:
            self.result.notes.append(note)

    def _different_prompts(self, outputs: Iterable[Output]) -> Iterator[str]:
        """Prompts that our tokenizer cuts otherwise, where their text was recorded."""
        prompts = {
            output.facts["prompt"]: output.facts["prompt_tokens"]
            for output in outputs
            if "prompt" in output.facts
        }
        if not prompts:
            return
        try:
            tokenizer = Tokenizer.from_metadata(self.file.metadata)
        except UserError as error:
            yield f"of prompts not known: {error.title} {error.sentence}"
            return
        for prompt, tokens in prompts.items():
            ours = tokenizer.encode(prompt, add_special=True, parse_special=True)
            if ours != tokens:
                yield f"prompt {prompt!r} is {ours}, not {tokens}"

    def _add_fault(self, fault: str) -> None:
        if fault not in self.result.faults:
            self.result.faults.append(fault)


def _rules_of(device: str) -> DeviceRules:
    """What a device can compute."""
    return next(facts.rules for facts in Machine().facts() if facts.name == device)
