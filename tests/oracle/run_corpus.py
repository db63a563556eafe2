"""Compare our scheduler with recorded scheduler cases: `make corpus CASES=FOLDER [OTHER=FOLDER]`.

CASES holds NNN.txt (a script) with NNN.jsonl (what the current version of ggml did); OTHER holds
what the older version did with the same scripts, NNN.jsonl only. The last line counts both.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from engine.core.behaviour import CURRENT, GGML_0_13, Behaviour
from tests.oracle.script import first_difference


def main(arguments: list[str]) -> int:
    """Print a line for each case that differs and the counts; 1 when any does."""
    if len(arguments) not in (1, 2):
        print("Usage: python -m tests.oracle.run_corpus CASES [OTHER]")
        return 2
    scripts = folder_with("*.txt", arguments[0])
    runs = [(folder_with("*.jsonl", arguments[0]), CURRENT)]
    if len(arguments) == 2:
        runs.append((folder_with("*.jsonl", arguments[1]), GGML_0_13))
    n_equal, n_different = 0, 0
    for recordings, behaviour in runs:
        for path in sorted(recordings.glob("*.jsonl")):
            difference = difference_of(scripts / f"{path.stem}.txt", path, behaviour)
            if difference:
                print(f"{recordings.name}/{path.stem}: {difference}", flush=True)
            n_different += bool(difference)
            n_equal += not difference
    print(f"{n_equal} equal, {n_different} different")
    return 1 if n_different or not n_equal else 0


def folder_with(pattern: str, folder: str) -> Path:
    """The folder, or its only subfolder that has such files, as archives unpack."""
    root = Path(folder)
    if not root.is_dir():
        sys.exit(f"There is no folder {folder}.")
    if any(root.glob(pattern)):
        return root
    inside = [path for path in sorted(root.iterdir()) if path.is_dir() and any(path.glob(pattern))]
    if len(inside) != 1:
        sys.exit(f"{folder} has no {pattern} files.")
    return inside[0]


def difference_of(script: Path, recording: Path, behaviour: Behaviour) -> str:
    """Where our run and the recording part; a script that fails is different too."""
    if not script.is_file():
        return f"there is no script {script.name}"
    try:
        return first_difference(script.read_text(), recording.read_text(), behaviour)
    except Exception as error:  # noqa: BLE001 - one broken case must not hide the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
