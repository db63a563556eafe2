"""What people type, in the parser's spelling; options it does not know, with what is near."""

from __future__ import annotations

import difflib
import itertools
import re
from typing import TYPE_CHECKING

from engine.core.options import SPEC_BY_FIELD
from engine.errors import UserError
from engine.model.manifest import DEMO

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ALIASES = {
    "--temperature": "--temp",
    "--n-predict": "--predict",
    "-nopo": "--no-op-offload",
    "--no-offload-op": "--no-op-offload",
}
"""Further names that llama.cpp has or had."""

DEFAULTS_SPELLED = frozenset({"--op-offload", "--kv-offload", "-kvo", "--repack", "--mmap"})
"""Options of llama.cpp that ask for what holds anyway."""

_MODEL = ("-m", "--model")
_FLASH = ("-fa", "--flash-attn")
_FLASH_WORDS = {
    "on": "on", "enabled": "on", "true": "on", "1": "on",
    "off": "off", "disabled": "off", "false": "off", "0": "off",
    "auto": "auto", "-1": "auto",
}  # fmt: skip
_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


def spelled(argv: Sequence[str]) -> list[str]:
    """`argv` as the parser reads it.

    `-m FILE` becomes the MODEL that stands first, `-fa` alone means on, and what holds anyway
    (`--op-offload`) is left out.
    """
    rest, model = list(argv), []
    out: list[str] = []
    while rest:
        word = rest.pop(0)
        if word in _MODEL and rest:
            model = [rest.pop(0)]
        elif word in _FLASH:
            out.extend(
                (word, _FLASH_WORDS[rest.pop(0)]) if _is_flash_word(rest) else [f"{word}=on"]
            )
        elif word not in DEFAULTS_SPELLED:
            out.append(ALIASES.get(word, word))
    return [*out[:1], *model, *out[1:]]


def _is_flash_word(rest: Sequence[str]) -> bool:
    return bool(rest) and rest[0] in _FLASH_WORDS


def refuse_flash_word(words: Sequence[str]) -> None:
    """UserError when the word that is too many was meant as the value of `-fa`; `words` spelled."""
    for word, following in itertools.pairwise(words):
        is_bare = word in [f"{name}=on" for name in _FLASH]
        is_file = following.endswith(".gguf") or following == DEMO
        if is_bare and not following.startswith("-") and not is_file:
            SPEC_BY_FIELD["flash_attn"].parse(following)


def unknown_option(argv: Sequence[str], known: Collection[str]) -> str | None:
    """The first word that looks like an option and is none."""
    for word in argv:
        name = word.partition("=")[0]
        looks_so = len(name) > 1 and name.startswith("-") and " " not in name
        if looks_so and name != "--" and not _NUMBER.fullmatch(name) and name not in known:
            return name
    return None


def no_such(kind: str, name: str, known: Collection[str], help_of: str) -> UserError:
    """There is no such option or command; names a near one, else where they are listed."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"See: python -m engine {help_of}--help"
    return UserError(f"There is no {kind} {name}.", hint=hint)
