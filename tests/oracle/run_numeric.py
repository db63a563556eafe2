"""Compare what our engine computes with recorded runs: `make numeric ROOT=FOLDER`.

ROOT has models/ and numeric/, or their archives: see `numeric_folder`. A line a model, what differs
below it; the last line counts nodes. `--device OpenCL0` computes there instead of on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from engine.machine import Machine
from tests.oracle.numeric_folder import models_in
from tests.oracle.numeric_model import CPU, ModelResult, compare_model
from tests.oracle.numeric_nodes import n_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.numeric_folder import RecordedModel

N_SHOWN = 5


def line_of(result: ModelResult) -> str:
    """What is said of a model in one line."""
    if result.is_absent:
        return f"{result.name}: absent, there is no {result.name}.gguf"
    equal = result.n_nodes - result.n_different
    text = [output for output in result.outputs if output.is_text]
    kind = "logit" if text or not result.outputs else "embedding"
    largest = max((output.largest_difference for output in result.outputs), default=None)
    difference = "not known" if largest is None else f"{largest:.2g}"
    tokens = "; ".join(result.tokens) or _tokens_without_difference(result)
    return (
        f"{result.name}: nodes {equal} / {result.n_nodes} within the bar, "
        f"largest {kind} difference {difference}, tokens {tokens}"
    )


def _tokens_without_difference(result: ModelResult) -> str:
    if not result.outputs:
        return "not known"
    return "equal" if any(output.is_text for output in result.outputs) else "not recorded"


def details_of(result: ModelResult) -> Iterator[str]:
    """What is said below it."""
    yield from result.notes
    yield from result.faults
    yield from map(str, result.outside[:N_SHOWN])
    if len(result.outside) > N_SHOWN:
        yield f"and {len(result.outside) - N_SHOWN} more nodes"
    if result.drifted:
        worst = max(node.error for node in result.drifted)
        yield (
            f"{len(result.drifted)} of the nodes within the bar are so from recorded sources: "
            f"the whole run had drifted by then, to NMSE {worst:.2g}"
        )


def result_of(recorded: RecordedModel, device: str) -> ModelResult:
    """The comparison; a model that fails has all its nodes different, with the reason."""
    try:
        return compare_model(recorded, device)
    except Exception as error:  # noqa: BLE001 - one broken model must not hide the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(where.filename).name}:{where.lineno}"
        lost = sum(n_recorded(folder) for dump in recorded.dumps() for folder in dump.folders)
        fault = f"{type(error).__name__} at {at}: {error}"
        return ModelResult(recorded.name, n_nodes=lost, n_lost=lost, faults=[fault])


def main(arguments: list[str]) -> int:
    """Print a line for each model and the counts; 1 when anything differs or nothing was there."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.run_numeric", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--device", default=CPU, help="default: %(default)s")
    given = parser.parse_args(arguments)
    if not given.root.is_dir():
        parser.error(f"There is no folder {given.root}.")
    names = [facts.name for facts in Machine().facts()]
    if given.device not in names:
        parser.error(f"There is no device {given.device}; here are: {', '.join(names)}.")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="splitscope-numeric-") as work:
        recorded = models_in(given.root, Path(work))
        results = [_told(result_of(model, given.device)) for model in recorded]
    print(f"took {time.monotonic() - start:.0f} s")
    print(counts_of(results))
    compared = [result for result in results if not result.is_absent]
    return 0 if compared and all(result.is_equal for result in compared) else 1


def counts_of(results: list[ModelResult]) -> str:
    """The sum in one line; absent models count on neither side."""
    n_different = sum(result.n_different for result in results)
    n_equal = sum(result.n_nodes for result in results) - n_different
    n_absent = sum(result.is_absent for result in results)
    absent = f", {n_absent} of {len(results)} models absent" if n_absent else ""
    return f"{n_equal} nodes equal, {n_different} different{absent}"


def _told(result: ModelResult) -> ModelResult:
    """The result, once it is printed."""
    print(line_of(result))
    for line in details_of(result):
        print(f"    {line}")
    sys.stdout.flush()
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
