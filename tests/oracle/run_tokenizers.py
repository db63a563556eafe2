"""Compare our tokenizer with recorded lines: `python -m tests.oracle.run_tokenizers FOLDER...`.

The folders are searched for vocabularies (NAME.gguf or NAME.gguf-header) and for recorded lines:
NAME.tsv (a JSON string, TAB, token ids, with special tokens) and NAME.gguf.inp with NAME.gguf.out
as llama.cpp has them (without special tokens). Lines are compared with the vocabulary of the same
name, else with the first whose name begins so. The last line counts.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.errors import UserError
from engine.gguf.reader import open_gguf
from engine.text.tokenizer import Tokenizer

SEPARATOR = "\n__ggml_vocab_test__\n"
PREFIX = "ggml-vocab-"


class Line(NamedTuple):
    """A text, its ids in llama.cpp, and whether special tokens were added and looked for."""

    text: str
    ids: list[int]
    special: bool


def tsv_lines(path: Path) -> Iterator[Line]:
    """Each recorded line; the empty text has no ids since it could not be recorded."""
    for line in path.read_text("utf-8").splitlines():
        text, _, ids = line.partition("\t")
        if ids:
            yield Line(json.loads(text), json.loads(ids), special=True)


def inp_lines(path: Path) -> Iterator[Line]:
    """Each text of an .inp file with the line of its .out file."""
    with path.open(encoding="utf-8", newline="") as file:
        texts = file.read().split(SEPARATOR)
    ids = path.with_suffix(".out").read_text("utf-8").split("\n")
    for text, line in zip(texts, ids, strict=False):
        yield Line(text, [int(word) for word in line.split()], special=False)


def recorded_lines(name: str, folders: list[Path]) -> list[Line]:
    """All lines recorded for a vocabulary."""
    lines: list[Line] = []
    for folder in folders:
        for path in sorted(folder.rglob(f"{name}.tsv")):
            lines += tsv_lines(path)
        for path in sorted(folder.rglob(f"{PREFIX}{name}.gguf.inp")):
            lines += inp_lines(path)
    return lines


def recorded_names(folders: list[Path]) -> list[str]:
    """The vocabularies that lines were recorded for."""
    names = {path.stem for folder in folders for path in folder.rglob("*.tsv")}
    for folder in folders:
        for path in folder.rglob(f"{PREFIX}*.gguf.inp"):
            names.add(path.name.removeprefix(PREFIX).removesuffix(".gguf.inp"))
    return sorted(names)


def vocabulary(name: str, folders: list[Path]) -> Path | None:
    """The file with a vocabulary; None where there is none."""
    for pattern in (f"{PREFIX}{name}.gguf", f"{name}.gguf*", f"{name}*.gguf*"):
        for folder in folders:
            for path in sorted(folder.rglob(pattern)):
                if path.suffix in (".gguf", ".gguf-header"):
                    return path
    return None


def differences(vocab: Path, lines: list[Line]) -> list[str]:
    """What our tokenizer makes otherwise, a sentence a line."""
    with open_gguf(vocab) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    different = []
    for text, ids, special in lines:
        ours = tokenizer.encode(text, add_special=special, parse_special=special)
        if ours != ids:
            different.append(f"{text!r}: recorded {ids}, ours {ours}")
    return different


def main(folders: list[Path]) -> int:
    """Print a line a vocabulary and the sums; 0 when all lines are equal."""
    n_equal = n_different = 0
    for name in recorded_names(folders):
        lines = recorded_lines(name, folders)
        path = vocabulary(name, folders)
        if path is None:
            print(f"{name}: left out, no vocabulary in these folders")
            continue
        try:
            different = differences(path, lines)
        except UserError as error:
            different = [str(error)] * len(lines)
        print(f"{name}: {len(lines) - len(different)} of {len(lines)} lines equal")
        print("".join(f"  {words}\n" for words in different), end="")
        n_equal += len(lines) - len(different)
        n_different += len(different)
    print(f"{n_equal} lines equal, {n_different} different")
    return 1 if n_different or not n_equal else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.oracle.run_tokenizers FOLDER...")
    sys.exit(main([Path(word) for word in sys.argv[1:]]))
