"""Compare our planner with recorded runs: `make placements CASES=FOLDER HEADERS=FOLDER`.

CASES holds MODEL/COMMANDS.txt, MODEL/CASE.log and MODEL/CASE.sum, HEADERS MODEL.gguf-header (or
MODEL.gguf); both may be what an archive unpacks into. A line a case, its differences below it; the
last line counts.
"""

from __future__ import annotations

import functools
import re
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UserError
from engine.gguf.reader import GgufFile, open_gguf
from engine.model.generic import check_has_graph
from tests.oracle.placement_log import Comparison, compare

NO_ROWS = "this version of llama.cpp has no row split: the recording is of a refusal"


@dataclass(frozen=True)
class Case:
    """One recorded run."""

    model: str
    name: str
    command: str
    folder: Path

    @property
    def left_out(self) -> str:
        """Why nothing is required of it; empty when all is."""
        if "row" in self._split_mode:
            return NO_ROWS
        if "tensor" in self._split_mode and (self.folder / f"{self.name}.sum").is_file():
            failed = re.search(r"^exit=([1-9]\d*)$", self.text(".sum"), re.MULTILINE)
            return f"llama.cpp itself stopped with exit code {failed.group(1)}" if failed else ""
        return ""

    @property
    def _split_mode(self) -> list[str]:
        return re.findall(r"-sm (\S+)", self.command)

    def text(self, suffix: str) -> str:
        """The log or the summary; sampled text between dumps may not be valid UTF-8."""
        path = self.folder / f"{self.name}{suffix}"
        return path.read_text(encoding="utf-8", errors="replace")

    def __str__(self) -> str:
        return f"{self.model}/{self.name}"


def cases_in(folder: Path) -> list[Case]:
    """Every case below `folder`, by model and in the order of COMMANDS.txt."""
    cases = []
    for commands in sorted(folder.rglob("COMMANDS.txt")):
        for line in commands.read_text(encoding="utf-8").splitlines():
            name, _, command = line.partition(":")
            if command.strip():
                folder_of = commands.parent
                cases.append(Case(folder_of.name, name.strip(), command, folder_of))
    return cases


@functools.lru_cache(maxsize=1)
def open_header(folder: Path, model: str) -> GgufFile:
    """The header of a model, which stays open for its next case."""
    for suffix in (".gguf-header", ".gguf"):
        for path in sorted(folder.rglob(f"{model}{suffix}")):
            return open_gguf(path)
    raise UserError(f"There is no header {model}.gguf-header in {folder}.")


def comparison_of(case: Case, headers: Path) -> Comparison:
    """What differs; a case that fails is different, with the reason."""
    try:
        file = open_header(headers, case.model)
        check_has_graph(file)
        return compare(file, case.command, case.text(".log"), case.text(".sum"))
    except UserError as error:
        return Comparison([f"{error.title} {error.sentence}"], [])
    except Exception as error:  # noqa: BLE001 - one broken case must not hide the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(where.filename).name}:{where.lineno}"
        return Comparison([f"{type(error).__name__} at {at}: {error}"], [])


def main(arguments: list[str]) -> int:
    """Print a line for each case and the counts; 1 when any differs."""
    if len(arguments) != 2:
        print("Usage: python -m tests.oracle.run_placements CASES HEADERS")
        return 2
    folders = [Path(argument) for argument in arguments]
    for folder in folders:
        if not folder.is_dir():
            print(f"There is no folder {folder}.")
            return 2
    start = time.monotonic()
    counts = {True: 0, False: 0}
    for case in cases_in(folders[0]):
        if case.left_out:
            print(f"left out {case}: {case.left_out}")
            continue
        comparison = comparison_of(case, folders[1])
        is_equal = not comparison.differences
        counts[is_equal] += 1
        print(f"{'equal' if is_equal else 'different'} {case}")
        for line in comparison.differences:
            print(f"    {line}")
        for line in comparison.reported:
            print(f"    reported only: {line}")
        sys.stdout.flush()
    print(f"took {time.monotonic() - start:.0f} s")
    print(f"{counts[True]} equal, {counts[False]} different")
    return 1 if counts[False] or not counts[True] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
