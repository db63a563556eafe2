"""Single operations on our CPU backend and on ggml's, in turns, on the same graph and bytes.

Both are devices of this process: a library of ggml's is loaded as any backend is.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backend.loader import Loader
from engine.backend.registry import Registry
from engine.backends import library_kinds
from engine.backends.cpu.reg import create
from engine.core import build
from engine.core.ops import Op
from engine.core.tensor import Tensor
from engine.core.types import TYPE_BY_LABEL, TensorType
from engine.opcheck.cases import CountedCase, case_of
from engine.opcheck.prepared import Exercise, Prepared, nodes_in_a_run, started
from engine.opcheck.words import case_words
from engine.session import Session
from tests.bench.stats import turns
from tests.bench.wire import REST_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import Backend, Device
    from engine.opcheck.cases import Case

INNER, ROWS = 4096, 4096
COLUMNS_OF_X = (1, 128)
N_RUNS = 5
THEIRS = "ggml-CPU"


def product_case(kind: TensorType, n_columns: int) -> CountedCase:
    """MUL_MAT of a matrix that no cache holds."""
    weight, x = Tensor(kind, (INNER, ROWS, 1, 1)), Tensor(TensorType.F32, (INNER, n_columns, 1, 1))
    return CountedCase(case_of(build.mul_mat(weight, x)))


def cases_of_group(group: str, path: Path) -> tuple[CountedCase, ...]:
    """Products of a type by its name, in one column and in many; else the model's operations."""
    kind = TYPE_BY_LABEL.get(group)
    if kind is None:
        return model_cases(path)
    return tuple(product_case(kind, n_columns) for n_columns in COLUMNS_OF_X)


def model_cases(path: Path) -> tuple[CountedCase, ...]:
    """The operations of a model's graphs."""
    session = Session()
    try:
        session.open(str(path))
        session.options = session.default_options()
        return session.op_cases(of_model=True)
    finally:
        session.close()


def ggml_device(folder: Path) -> tuple[Device, str]:
    """The CPU of the best library in a folder, and the library's name."""
    loader = Loader(Registry(), library_kinds(), (), ())
    loader.load(folder)
    device = loader.registry.device(THEIRS)
    origin = loader.registry.origin(loader.registry.family(device))
    assert origin is not None
    return device, Path(origin.place).name


@dataclass(frozen=True, slots=True)
class _Side:
    device: Device
    backend: Backend

    def supports(self, case: CountedCase) -> bool:
        node = case.case.tensors(self.device.buffer_type().facts).node
        return self.device.facts.rules.supports_op(node)


def pairs(
    cases: Sequence[CountedCase], devices: Sequence[Device], *, n_threads: int, n_pairs: int
) -> list[dict[str, Any]]:
    """A row a case: what it is, and seconds of one node on each device, pair by pair.

    A case that one of them lacks is left out.
    """
    with ExitStack() as stack:
        sides = []
        for device in devices:
            backend = started(device, n_threads)
            stack.callback(backend.dispose)
            sides.append(_Side(device, backend))
        return [
            _row(case, sides, n_pairs)
            for case in cases
            if all(side.supports(case) for side in sides)
        ]


def _row(counted: CountedCase, sides: Sequence[_Side], n_pairs: int) -> dict[str, Any]:
    case = counted.case
    return {
        "op": case.op_desc,
        "type": case.type,
        "case": case_words(case),
        "n_prompt": counted.n_prompt,
        "n_token": counted.n_token,
        "n_bytes": case.n_bytes,
        "n_flops": case.n_flops,
        "is_batch": is_batch(case),
        "seconds": _in_turns(Exercise(case), sides, n_pairs),
    }


def is_batch(case: Case) -> bool:
    """Whether it multiplies more than one column, so that computing bounds it."""
    i_columns = 0 if case.op is Op.FLASH_ATTN_EXT else 1
    return case.n_flops > 0 and case.sources[i_columns].ne[1] > 1


def _in_turns(exercise: Exercise, sides: Sequence[_Side], n_pairs: int) -> list[list[float]]:
    """The same number of nodes in each run of both sides."""
    with ExitStack() as stack:
        n_nodes = min(
            nodes_in_a_run(side.device.buffer_type(), side.backend, exercise) for side in sides
        )
        ready = _prepared(stack, exercise, sides, n_nodes)
        for prepared in ready:
            prepared.run()
        seconds: list[list[float]] = [[] for _ in sides]
        for order in turns(n_pairs):
            for i_side in order if len(sides) > 1 else (0,):
                # Threads that spin after the other side's last run have gone to sleep by then.
                time.sleep(REST_S)
                took_ns = statistics.median(ready[i_side].run() for _ in range(N_RUNS))
                seconds[i_side].append(took_ns / n_nodes / 1e9)
        return seconds


def _prepared(
    stack: ExitStack, exercise: Exercise, sides: Sequence[_Side], n_nodes: int
) -> list[Prepared]:
    made = []
    for side in sides:
        prepared = Prepared(side.device.buffer_type(), side.backend, exercise, n_nodes)
        stack.callback(prepared.release)
        made.append(prepared)
    return made


class OpPairs:
    """Answers requests for pairs; ggml's library is loaded once."""

    def __init__(self) -> None:
        self._ours = create().devices()[0]
        self._theirs: tuple[Device, str] | None = None

    def answer(
        self, group: str, folder: str | None, path: str, n_threads: int, n_pairs: int
    ) -> dict[str, Any]:
        """The rows of a group of cases; of ours alone where there is no folder of libraries."""
        devices = [self._ours]
        if folder is not None:
            self._theirs = self._theirs or ggml_device(Path(folder))
            devices.append(self._theirs[0])
        cases = cases_of_group(group, Path(path))
        rows = pairs(cases, devices, n_threads=n_threads, n_pairs=n_pairs)
        return {"rows": rows, "library": "" if self._theirs is None else self._theirs[1]}
