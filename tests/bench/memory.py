"""The memory of the engine's process against the model's file and what its plan told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.models import model_path
from tests.bench.process_memory import above, touched_bytes
from tests.bench.race import Work
from tests.bench.results import Cell, Column, Part, Table

if TYPE_CHECKING:
    from tests.bench.tools import Tools

MB = 1e6
COLUMNS = (
    Column("model"), Column("file"), Column("high-water mark"), Column("of it at the end: own"),
    Column("at the end: files"), Column("of the model's file"), Column("weights copied from it"),
    Column("KV and state"), Column("compute"), Column("above these"),
)  # fmt: skip
NOTES = (
    "Megabytes (10^6 bytes), after a prompt of 512 and 64 tokens in a context of 1024.",
    "Above these: the high-water mark less touched pages of the model's file, KV and state, and "
    "the planned compute buffers. It holds Python, its libraries and compiled kernels.",
    "Touched pages: those that the process still has, and those of weights that were copied to "
    "memory of another kind, such as CPU_REPACK, at most the file's size: pages that hold other "
    "weights too stay. Less than nothing: compute buffers were planned and not touched.",
)
WORKS = (Work("prefill", 512), Work("decode", 64))


def memory(tools: Tools) -> Part:
    """Every model, on the most threads that are measured."""
    rows: list[tuple[Cell, ...]] = []
    figures, data = {}, {}
    for model in tools.wish.models:
        path = model_path(model, tools.say)
        tools.say(f"{model}: memory")
        with tools.loaded(path, tools.wish.threads[-1]) as ours:
            for work in WORKS:
                ours.ask(work.request, tokens=work.tokens())
            answer = ours.ask("memory", path=str(path))
        if not answer["process"]:
            note = "This system does not tell what a process holds."
            return Part(Table("Memory", COLUMNS, (), (note,)))
        data[model] = answer
        cells = memory_cells(answer, path.stat().st_size)
        figures[f"above mb {model}"] = cells[-1]
        rows.append((model, path.stat().st_size / MB, *cells))
    return Part(Table("Memory", COLUMNS, tuple(rows), NOTES), figures, data)


def memory_cells(answer: dict[str, Any], size: int) -> tuple[float, ...]:
    """The row of a model behind the size of its file; the last is what stands above the plan."""
    process, planned = answer["process"], answer["planned"]
    pages, copied = answer["file_pages"], answer["copied"]
    n_bytes = (
        process["VmHWM"], process["RssAnon"] + process["RssShmem"], process["RssFile"], pages,
        copied, planned["kv"] + planned["state"], planned["compute"],
        above(process, touched_bytes(pages, copied, size), planned),
    )  # fmt: skip
    return tuple(n / MB for n in n_bytes)
