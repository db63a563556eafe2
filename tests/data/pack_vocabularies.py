"""Cut real vocabularies down to what their recorded lines reach.

    python -m tests.data.pack_vocabularies FOLDER...

Only needed when the choice changes. The folders are those of tests.oracle.run_tokenizers; the
result is vocabularies.json.xz of tests/engine/text: by name the tokenizer's keys with the tokens,
merges and scores that were looked for and found, ids counted anew, and the recorded lines with
these ids. The lines of nomic-bert-moe were recorded with llama_tokenize of llama.cpp's library in
@node-llama-cpp/linux-x64 3.21.1.
"""

import json
import lzma
import sys
from pathlib import Path
from typing import Any

from engine.gguf.reader import open_gguf
from engine.text.bpe import BytePairEncoder
from engine.text.kinds import TextKind, read_kind
from engine.text.tokenizer import Tokenizer
from engine.text.unigram import UnigramEncoder
from engine.text.vocab import Kind, Vocab
from tests.oracle.run_tokenizers import Line, recorded_lines, vocabulary

PACKED = Path(__file__).parents[1] / "engine" / "text" / "vocabularies.json.xz"
NAMES = (
    *("bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-3", "gemma-4"),
    *("gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mpt", "nomic-bert-moe", "phi-3", "qwen2"),
    *("qwen35", "refact", "starcoder"),
)
KEPT = (
    *("general.name", "general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"),
    *("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"),
    *("tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces"),
)
PREFIX = "tokenizer.ggml."


class Seen(dict[Any, Any]):
    """A mapping that remembers what was looked for and found."""

    def __init__(self, items: dict[Any, Any]) -> None:
        super().__init__(items)
        self.found: set[Any] = set()

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __getitem__(self, key: Any) -> Any:
        self.found.add(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key)
        if value is None:
            return default
        self.found.add(key)
        return value


def cut(metadata: dict[str, Any], lines: list[Line]) -> dict[str, Any]:
    """The reduced keys and lines of one vocabulary."""
    kind = read_kind(metadata)
    vocab = kind.vocab
    ids, pairs, pieces = watch(kind)
    tokenizer = Tokenizer(kind)
    for line in lines:
        special = line.special
        assert line.ids == tokenizer.encode(line.text, add_special=special, parse_special=special)
    kept = {vocab.ids[text] for text in ids.found | pieces.found}
    kept |= {token for line in lines for token in line.ids}
    special_ids = ids_with_a_meaning(metadata, vocab)
    kept |= set(special_ids.values())
    for token in vocab.special_ids:
        if any(vocab.tokens[token] in line.text for line in lines):
            kept.add(token)
    if PREFIX + "scores" in metadata:
        normal = [i for i, k in enumerate(vocab.kinds) if k & Kind.NORMAL]
        kept.add(min(normal, key=lambda i: metadata[PREFIX + "scores"][i]))
    new = {old: token for token, old in enumerate(sorted(kept))}
    keys = reduced(metadata, list(new), pairs)
    keys |= {f"{PREFIX}{name}_token_id": new[token] for name, token in special_ids.items()}
    renumbered = [[line.text, [new[i] for i in line.ids], line.special] for line in lines]
    return {"metadata": keys, "lines": renumbered}


def watch(kind: TextKind) -> tuple[Seen, Seen, Seen]:
    """What will be found of a vocabulary's ids, of its merges and of its unigram pieces."""
    encoder: Any = kind.encoder
    ids, pairs, pieces = Seen(dict(kind.vocab.ids)), Seen({}), Seen({})
    object.__setattr__(kind.vocab, "ids", ids)
    if isinstance(encoder, BytePairEncoder):
        pairs = encoder.__dict__["_ranks"] = Seen(encoder._ranks)
    if isinstance(encoder, UnigramEncoder):
        pieces = encoder.__dict__["_scores"] = Seen(encoder._scores)
    return ids, pairs, pieces


def ids_with_a_meaning(metadata: dict[str, Any], vocab: Vocab) -> dict[str, int]:
    """Special ids by their short names: those the file states and those it leaves to a default."""
    named = {name: metadata.get(f"{PREFIX}{name}_token_id") for name in ("eot", "eom")}
    named |= {"bos": vocab.bos_id, "eos": vocab.eos_id}
    named |= {"unknown": vocab.unk_id, "seperator": vocab.sep_id}
    return {name: token for name, token in named.items() if token is not None}


def reduced(metadata: dict[str, Any], kept: list[int], pairs: Seen) -> dict[str, Any]:
    """Keys with the kept tokens and the found merges only."""
    keys = {key: metadata[key] for key in KEPT if key in metadata}
    for name in ("tokens", "token_type", "scores"):
        if PREFIX + name in metadata:
            listed = metadata[PREFIX + name]
            keys[PREFIX + name] = [plain(listed[i]) for i in kept]
    if PREFIX + "merges" in metadata:
        found = sorted(pairs.found, key=dict(pairs).__getitem__)
        keys[PREFIX + "merges"] = [" ".join(pair) for pair in found]
    return keys


def plain(value: Any) -> Any:
    """A numpy number as Python's own, which JSON writes."""
    return value.item() if hasattr(value, "item") else value


def main(folders: list[Path]) -> None:
    """Write the packed file."""
    packed = {}
    for name in NAMES:
        path = vocabulary(name, folders)
        assert path is not None, name
        with open_gguf(path) as file:
            packed[name] = cut(dict(file.metadata), recorded_lines(name, folders))
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    PACKED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
