"""Copies of used experts in words: which, how many bytes, what all would have taken. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.theme.text import SPACE, bytes_text, count, duration_text, plural
from engine.core.experts import runs_text
from engine.trace.expert_use import copied_runs, expert_pieces, expert_use

if TYPE_CHECKING:
    from engine.core.experts import ExpertUse, Run
    from engine.core.table import PlanTable
    from engine.trace.records import Spans


@dataclass(frozen=True, slots=True)
class ExpertWords:
    """One expert copy, in one step or on average over several; `runs` are known in one step.

    `whole_ns` estimates how long copying all experts would have taken at the rate of `basis`; 0
    and "" where no time was measured.
    """

    runs: tuple[Run, ...]
    which: str
    moved: str
    whole: str
    whole_ns: float
    basis: str


def expert_words(
    table: PlanTable, spans: Spans, copy_id: int, *, step: int = -1
) -> ExpertWords | None:
    """An expert copy in one step, or (-1) in all of them; None when it is none or has not run."""
    mine = expert_pieces(spans[spans["plan_id"] == table.plan_id])
    mine = mine[mine["index"] == copy_id]
    if step >= 0:
        mine = mine[mine["step"] == step]
    use = expert_use(mine, table.copies)
    if use is None:
        return None
    runs = copied_runs(mine) if use.n_copies == 1 else ()
    return ExpertWords(
        runs=runs,
        which=_which(use, runs),
        moved=bytes_text(round(use.copied_bytes / use.n_copies)),
        whole=bytes_text(use.whole_bytes // use.n_copies),
        whole_ns=use.whole_ns / use.n_copies,
        basis=f"{count(use.bytes_per_ns, 1)}{SPACE}GB/s" if use.bytes_per_ns else "",
    )


def piece_lines(table: PlanTable, spans: Spans, row: int) -> list[str]:
    """What the tip of one piece adds: its experts, those of the whole copy, what all would take.

    Empty for a span that is no run of experts.
    """
    own, step = copied_runs(spans[row : row + 1]), int(spans[row]["step"])
    if not own:
        return []
    copy_id = int(spans[row]["index"])
    words = expert_words(table, spans[spans["step"] == step], copy_id)
    if words is None:
        return []
    of = f"of {count(int(table.copies[copy_id]['n_experts']))}"
    lines = [f"{_numbers(own)} {of}"]
    if own != words.runs:
        lines.append(f"this copy: {_numbers(words.runs)} {of}")
    lines[-1] += f", {words.moved} of {words.whole}"
    if words.whole_ns:
        time = duration_text(words.whole_ns)
        lines.append(f"copying all: about {time} at this copy's {words.basis}, estimated")
    return lines


def _which(use: ExpertUse, runs: tuple[Run, ...]) -> str:
    """In one step "1-2, 5, 7 of 8", in more "2.5 of 8 on average over 3 steps"."""
    of = count(use.n_experts // use.n_copies)
    if runs:
        return f"{runs_text(runs)} of {of}"
    n_used = count(use.n_used / use.n_copies, 1)
    return f"{n_used} of {of} on average over {plural(use.n_copies, 'step')}"


def _numbers(runs: tuple[Run, ...]) -> str:
    """The experts with their noun: "expert 7", "experts 1-2, 5"."""
    is_one = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"expert{'' if is_one else 's'} {runs_text(runs)}"
