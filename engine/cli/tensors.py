"""tensors: what any GGUF file holds, also one of an architecture that cannot be planned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.output import counted, mib, print_json, print_table
from engine.cli.parser import command_parser
from engine.cli.progress import ProgressLine
from engine.core.visible import visible
from engine.errors import UserError
from engine.gguf import keys
from engine.gguf.reader import open_gguf
from engine.model.fetch import fetch_demo
from engine.model.loader import check_loadable
from engine.model.manifest import DEMO

if TYPE_CHECKING:
    import argparse

    from engine.gguf.reader import GgufFile


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "tensors", "the tensors of any GGUF file", execute)
    parser.add_argument("model", metavar="FILE", help="a .gguf file, or demo")


def execute(args: argparse.Namespace) -> int:
    """Print one line a tensor, then their sum."""
    with open_gguf(_path(args.model)) as file:
        problem = _problem(file)
        if problem:
            print(visible(problem), file=sys.stderr)
        if args.json:
            print_json(tensors_data(file) | ({"problem": problem} if problem else {}))
        else:
            print_tensors(file)
    return 0


def tensors_data(file: GgufFile) -> dict[str, Any]:
    """The tensors in file order; offsets count from the start of the file."""
    return {
        "arch": file.metadata.get(keys.ARCHITECTURE),
        "file_bytes": file.size,
        "bytes": sum(info.n_bytes for info in file.tensors),
        "tensors": [
            {
                "name": info.name,
                "type": info.type.label,
                "ne": info.ne,
                "bytes": info.n_bytes,
                "offset": file.data_offset + info.offset,
            }
            for info in file.tensors
        ],
    }


def print_tensors(file: GgufFile) -> None:
    """The same as a table."""
    print_table(
        ("name", "type", "ne", "MiB", "file offset"),
        [
            (
                info.name,
                info.type.label,
                " x ".join(map(str, info.ne)),
                mib(info.n_bytes),
                str(file.data_offset + info.offset),
            )
            for info in file.tensors
        ],
    )
    n_bytes = sum(info.n_bytes for info in file.tensors)
    n_tensors = counted(len(file.tensors), "tensor")
    arch = visible(str(file.metadata.get(keys.ARCHITECTURE, "unknown")))
    print(
        f"{n_tensors}, {mib(n_bytes)} MiB; the file has {mib(file.size)} MiB; architecture {arch}"
    )


def _path(model: str) -> Path:
    if model != DEMO:
        return Path(model)
    line = ProgressLine()
    try:
        return fetch_demo(line)
    finally:
        line.clear()


def _problem(file: GgufFile) -> str:
    try:
        check_loadable(file)
    except UserError as error:
        return str(error)
    return ""
