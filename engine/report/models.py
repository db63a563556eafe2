"""What is said of an opened file, also when it can be neither planned nor run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.summary import ModelSummary, TensorSummary
from engine.errors import UserError
from engine.gguf import keys
from engine.model.generic import check_has_graph
from engine.model.loader import check_loadable
from engine.model.planned_model import read_model
from engine.text.chat_template import has_template
from engine.text.prompt import text_faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.gguf.reader import GgufFile


def model_summary(file: GgufFile) -> ModelSummary:
    """What is said of an opened file, also when it can be neither planned nor run."""
    arch = file.metadata.get(keys.ARCHITECTURE)
    arch_text = arch if isinstance(arch, str) else "unknown"
    return ModelSummary(
        path=str(file.path),
        name=_text(file, keys.NAME, Path(file.path).stem),
        arch=arch_text,
        quantization=_main_type(file),
        file_bytes=file.size,
        weight_bytes=sum(info.n_bytes for info in file.tensors),
        n_layers=_count(file, f"{arch_text}.block_count"),
        n_embd=_count(file, f"{arch_text}.embedding_length"),
        n_head=_count(file, f"{arch_text}.attention.head_count"),
        n_head_kv=_count(file, f"{arch_text}.attention.head_count_kv"),
        n_vocab=_vocabulary(file),
        n_ctx_train=_count(file, f"{arch_text}.context_length"),
        tensors=tuple(
            TensorSummary(info.name, info.type.label, info.ne, info.n_bytes)
            for info in file.tensors
        ),
        has_chat_template=has_template(file.metadata),
        plan_problem=_problem(lambda: _check_plannable(file)),
        run_problem=_problem(lambda: _check_runnable(file)),
        n_expert=_count(file, f"{arch_text}.expert_count"),
        text_faults=text_faults(file.metadata),
        gives_embeddings=_gives_embeddings(file),
    )


def _check_plannable(file: GgufFile) -> None:
    read_model(file)


def _check_runnable(file: GgufFile) -> None:
    check_has_graph(file)
    check_loadable(file)


def _gives_embeddings(file: GgufFile) -> bool:
    """Whether embeddings are what it is for; a file that cannot be planned gives none."""
    try:
        return read_model(file).hparams.gives_embeddings
    except UserError:
        return False


def _problem(check: Callable[[], None]) -> str:
    try:
        check()
    except UserError as error:
        return "\n".join(part for part in (error.title, error.sentence, error.hint) if part)
    return ""


def _text(file: GgufFile, key: str, default: str) -> str:
    value = file.metadata.get(key)
    return value if isinstance(value, str) and value else default


def _count(file: GgufFile, key: str) -> int:
    value = file.metadata.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def _vocabulary(file: GgufFile) -> int:
    tokens = file.metadata.get(keys.TOKENIZER_TOKENS)
    return 0 if tokens is None or isinstance(tokens, str | int | float) else len(tokens)


def _main_type(file: GgufFile) -> str:
    """The type most bytes are in."""
    n_bytes: Counter[str] = Counter()
    for info in file.tensors:
        n_bytes[info.type.label] += info.n_bytes
    return n_bytes.most_common(1)[0][0] if n_bytes else "no tensors"
