"""How each BPE vocabulary cuts text into words before merging.

A rule is a list of patterns applied in turn, each inside the pieces the one before left; what a
pattern does not match stays as pieces of its own. Facts from llama-vocab.cpp and unicode.cpp.
Letters and numbers are those of the `regex` package's Unicode version, which is newer than
llama.cpp's (15.0): text in scripts assigned since then may be cut elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from collections.abc import Iterator

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = "|".join((_CONTRACTIONS, _LETTERS, r"\p{N}{1,3}", _SIGNS, _LINES_AND_SPACES))
_QWEN2 = "|".join((_CONTRACTIONS, _LETTERS, r"\p{N}", _SIGNS, _LINES_AND_SPACES))
_QWEN35 = "|".join(
    (
        _CONTRACTIONS,
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _LINES_AND_SPACES,
    )
)
_CJK = r"[一-龥ࠀ-一가-퟿]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A rule: its patterns, and what the vocabulary's family does besides.

    `ignore_merges`: a word that is a token is taken whole. `add_bos`: the default for a file that
    does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def words(self, text: str) -> list[str]:
        """The text in pieces; joined they are the text."""
        pieces = [text] if text else []
        for pattern in self.patterns:
            compiled = _compiled(pattern)
            pieces = [part for piece in pieces for part in _cut(compiled, piece)]
        return pieces


_RULES: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (
        ("default",),
        PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
    (
        (
            *("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo"),
            *("jais", "exaone4", "trillion", "granite-docling"),
        ),
        PreTokenizer((_GPT2,)),
    ),
    (
        (
            *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
            *("minerva-7b", "mellum2"),
        ),
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    (
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    (("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    (
        (
            *("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2"),
            *("hunyuan", "solar-open", "grok-2"),
        ),
        PreTokenizer((_QWEN2,)),
    ),
    (("qwen35",), PreTokenizer((_QWEN35,))),
    (
        ("falcon",),
        PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ),
    (
        ("deepseek-coder",),
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    ),
)

PRE_TOKENIZERS = {name: rule for names, rule in _RULES for name in names}
"""Rules by the name in "tokenizer.ggml.pre"."""


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


def _cut(compiled: regex.Pattern[str], piece: str) -> Iterator[str]:
    """Matches and the gaps between them, in order."""
    start = 0
    for match in compiled.finditer(piece):
        if match.start() > start:
            yield piece[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(piece):
        yield piece[start:]
