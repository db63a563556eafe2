"""From a typed command to its first token, with and without compiled kernels, and planning."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

from engine.model.manifest import DEMO
from tests.bench.models import model_path
from tests.bench.results import Cell, Column, Part, Table
from tests.bench.stats import spread
from tests.bench.wire import ROOT, ChildError
from tests.bench.words import with_quartiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.bench.tools import Tools

N_STARTS = 5
N_PLANS = 9
PROMPT = "The capital of France is"
PLACES: dict[str, tuple[str, ...]] = {"CPU alone": ("-dev", "none"), "half on the GPU": ()}
"""Where layers lie, and what says so: the demo leaves half of them on the CPU by itself."""
CACHES = ("NUMBA_CACHE_DIR", "POCL_CACHE_DIR", "XDG_CACHE_HOME")
COLUMNS = (
    Column("start"), Column("layers"), Column("first token, s"), Column("end, s"),
    Column("CPU time of all processes, s"),
)  # fmt: skip


class Start(NamedTuple):
    """Seconds of one start; `cpu_s` of the process and those that it started."""

    first_token_s: float
    end_s: float
    cpu_s: float


def startup(tools: Tools) -> Part:
    """Starts with everything compiled; the first is not counted."""
    rows: list[tuple[Cell, ...]] = []
    figures = {}
    path = model_path(DEMO, tools.say)
    for place, words in PLACES.items():
        starts = []
        for i in range(N_STARTS + 1):
            tools.say(f"warm start, {place}: {i} of {N_STARTS}")
            starts.append(started(words_of(path, words), tools.log))
        warm = starts[1:]
        figures[f"warm start s {place}"] = spread([s.first_token_s for s in warm]).median
        rows.append(
            ("warm", place, *(with_quartiles(s, digits=2) for s in zip(*warm, strict=True)))
        )
    notes = (f"python -m engine run of the demo model, {N_STARTS} times each.",)
    return Part(Table("Warm start", COLUMNS, tuple(rows), notes), figures)


def cold(tools: Tools) -> Part:
    """One start each with nothing compiled: fresh folders for every cache of kernels."""
    rows: list[tuple[Cell, ...]] = []
    figures = {}
    path = model_path(DEMO, tools.say)
    for place, words in PLACES.items():
        tools.say(f"cold start, {place}: every kernel is compiled, which takes up to a minute")
        with tempfile.TemporaryDirectory() as folder:
            fresh = dict.fromkeys(CACHES, folder)
            start = started(words_of(path, words), tools.log, fresh)
        figures[f"cold start s {place}"] = start.first_token_s
        rows.append(("cold", place, *(f"{seconds:.2f}" for seconds in start)))
    notes = ("Once each, with fresh folders for compiled kernels of numba and OpenCL.",)
    return Part(Table("Cold start", COLUMNS, tuple(rows), notes), figures)


def words_of(path: Path, words: Sequence[str]) -> list[str]:
    """The command. By its path, since a fresh cache holds no demo model."""
    layers = [] if words else ["-ngl", "15"]
    return ["run", str(path), "-p", PROMPT, "-n", "1", *layers, *words]


def started(words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Start:
    """Run the command line once; its first byte of output comes with the first token."""
    cpu_s = _cpu_of_children()
    start = time.perf_counter()
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stream,
            cwd=ROOT, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.read(1)
        first_token_s = time.perf_counter() - start
        process.stdout.read()
        status = process.wait()
        process.stdout.close()
    if status != 0:
        raise ChildError(f"python -m engine {' '.join(words)} ended with status {status}")
    return Start(first_token_s, time.perf_counter() - start, _cpu_of_children() - cpu_s)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def planning(tools: Tools) -> Part:
    """Both plans of each model from nothing, its file already read."""
    rows: list[tuple[Cell, ...]] = []
    figures, data = {}, {}
    for model in tools.wish.models:
        path = model_path(model, tools.say)
        tools.say(f"{model}: planning, {N_PLANS} times")
        with tools.loaded(path, tools.wish.threads[-1]) as ours:
            each = ours.ask("planning", n_runs=N_PLANS)["each"]
        data[model] = each
        figures[f"planning ms {model}"] = 1e3 * spread(each).median
        rows.append((model, with_quartiles([1e3 * seconds for seconds in each], digits=1)))
    columns = (Column("model"), Column("both plans, ms"))
    notes = (f"Prompt and token batch from nothing, the file already read, {N_PLANS} times.",)
    return Part(Table("Planning", columns, tuple(rows), notes), figures, data)
