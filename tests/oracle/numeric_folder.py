"""Find recorded values of whole models: a folder of the form of oracle/arch.

    models/NAME.gguf
    numeric/NAME/nodes-[tg-][cN-]faN/        the nodes of a prompt, and of the token after it
    numeric/NAME/PROMPT[.cN][.faN].json      tokens; with .logits.npy beside it
    numeric/NAME/PROMPT.faN.WHAT.npy         embeddings: pooled, tokens, pool-cls, pool-mean...

An archive in place of a folder is unpacked; either may lie in a folder of the same name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.core.options import FlashAttn, PoolingWish
from tests.archives import unpack_tar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N_CTX = 256
"""Of recordings that do not say another."""

POOLINGS = {"pooled": PoolingWish.MODEL, "tokens": PoolingWish.NONE}


@dataclass(frozen=True, order=True)
class Setting:
    """What a recording was made with; a run can give all that share one."""

    n_ctx: int = N_CTX
    flash_attn: FlashAttn = FlashAttn.AUTO
    pooling: PoolingWish = PoolingWish.MODEL


@dataclass(frozen=True)
class NodeDump:
    """Folders of node values: a prompt's, then the next token's where there is one."""

    setting: Setting
    folders: tuple[Path, ...]


@dataclass(frozen=True)
class Output:
    """What a model gave for a prompt: logits of its last position, or embeddings."""

    name: str
    setting: Setting
    facts: dict[str, Any]
    """The recorded JSON: prompt_tokens, and of text models greedy, top1_gap, perhaps prompt."""
    values: Path

    @property
    def is_text(self) -> bool:
        """Whether the model went on with a text."""
        return "greedy" in self.facts


@dataclass(frozen=True)
class RecordedModel:
    """A model and everything that was recorded of it."""

    name: str
    folder: Path
    model: Path | None

    def dumps(self) -> list[NodeDump]:
        """The recorded graphs."""
        found = []
        for folder in sorted(self.folder.glob("nodes-*")):
            _, *words = folder.name.split("-")
            if words[0] == "tg":
                continue
            following = folder.with_name("-".join(["nodes", "tg", *words]))
            folders = (folder, following) if following.is_dir() else (folder,)
            found.append(NodeDump(_setting(words), folders))
        return found

    def outputs(self) -> list[Output]:
        """The recorded logits and embeddings."""
        return [output for path in sorted(self.folder.glob("*.npy")) for output in _output(path)]


def models_in(root: Path, work: Path) -> list[RecordedModel]:
    """Every recorded model below `root`; archives are unpacked into `work`."""
    places = [root, *(_unpacked(root, name, work) for name in ("numeric", "models"))]
    outputs = [path.parent for place in places for path in _below(place, "*/*.npy")]
    tables = [path for place in places for path in _below(place, "*/nodes-*/nodes.tsv")]
    files = {path.stem: path for place in places for path in _below(place, "*.gguf")}
    folders = {folder.name: folder for folder in [*outputs, *(t.parent.parent for t in tables)]}
    return [RecordedModel(name, folders[name], files.get(name)) for name in sorted(folders)]


def _below(place: Path, pattern: str) -> Iterator[Path]:
    """What matches in a folder and in three levels of folders below it, through links too."""
    for depth in range(4):
        yield from sorted(place.glob("*/" * depth + pattern))


def _unpacked(root: Path, name: str, work: Path) -> Path:
    """Where the archives of that name are unpacked; empty where there is the folder already."""
    target = work / name
    target.mkdir()
    archives = [] if (root / name).is_dir() else sorted(root.glob(f"{name}.tar*"))
    for archive in archives:
        unpack_tar(archive, target)
    return target


def _output(path: Path) -> list[Output]:
    """What an array is; nothing for one of another kind."""
    *parts, what = path.stem.split(".")
    if what == "logits":
        facts, pooling = path.with_name(".".join(parts) + ".json"), PoolingWish.MODEL
    elif what in POOLINGS or what.startswith("pool-"):
        facts = path.with_name(f"{parts[0]}.json")
        pooling = POOLINGS.get(what) or PoolingWish(what.removeprefix("pool-"))
    else:
        return []
    setting = replace(_setting(parts), pooling=pooling)
    return [Output(path.stem, setting, json.loads(facts.read_text(encoding="utf-8")), path)]


def _setting(words: list[str]) -> Setting:
    """What the words of a name say: cN the context, faN flash attention."""
    n_ctx = next((int(word[1:]) for word in words if re.fullmatch(r"c\d+", word)), N_CTX)
    flash_attn = FlashAttn.AUTO
    if "fa0" in words:
        flash_attn = FlashAttn.OFF
    if "fa1" in words:
        flash_attn = FlashAttn.ON
    return Setting(n_ctx, flash_attn)
