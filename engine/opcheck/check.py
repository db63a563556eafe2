"""All cases on all devices: `check_ops` gives the matrix that commands and windows show."""

from __future__ import annotations

import difflib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.op_matrix import OpMatrix, OpRow, OpState, OpVerdict
from engine.core.ops import GluOp, Op, UnaryOp
from engine.core.summary import Progress
from engine.core.types import TYPE_BY_LABEL
from engine.errors import Stopped, UserError
from engine.opcheck.prepared import Exercise
from engine.opcheck.words import case_words

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from engine.core.summary import OnProgress, StopAsked
    from engine.opcheck.cases import CountedCase
    from engine.opcheck.stream import Subject


def check_ops(
    subjects: Sequence[Subject],
    cases: Sequence[CountedCase],
    *,
    with_speed: bool,
    on_progress: OnProgress,
    stop_asked: StopAsked,
) -> OpMatrix:
    """Check every case on every subject, one after the other; they are closed at the end.

    When a person asks to stop, what was found is kept, and the rest is `not checked`.
    """
    with ExitStack() as stack:
        for subject in subjects:
            stack.callback(subject.close)
        check = _Check(subjects, len(cases), with_speed, on_progress, stop_asked)
        rows = tuple(check.row(i_case, counted) for i_case, counted in enumerate(cases))
    return OpMatrix(tuple(subject.name for subject in subjects), rows, check.is_stopped)


@dataclass(slots=True)
class _Check:
    """A check under way."""

    subjects: Sequence[Subject]
    n_cases: int
    with_speed: bool
    on_progress: OnProgress
    stop_asked: StopAsked
    is_stopped: bool = False

    def row(self, i_case: int, counted: CountedCase) -> OpRow:
        """One case on every subject."""
        exercise = Exercise(counted.case)
        verdicts = [self._verdict(i_case, exercise, subject) for subject in self.subjects]
        return _row(counted, verdicts)

    def _verdict(self, i_case: int, exercise: Exercise, subject: Subject) -> OpVerdict:
        self.is_stopped = self.is_stopped or self.stop_asked()
        if not self.is_stopped:
            case = exercise.case
            label = f"{case.op_desc} {case.type} on {subject.name}"
            self.on_progress(Progress(label, i_case, self.n_cases))
            try:
                return subject.verdict(exercise, with_speed=self.with_speed)
            except Stopped:
                self.is_stopped = True
        return OpVerdict(OpState.NOT_CHECKED, exercise.bar)


def _row(counted: CountedCase, verdicts: Sequence[OpVerdict]) -> OpRow:
    case = counted.case
    return OpRow(
        op=case.op_desc,
        type=case.type,
        words=case_words(case),
        verdicts=tuple(verdicts),
        n_prompt=counted.n_prompt,
        n_token=counted.n_token,
    )


def chosen(cases: Sequence[CountedCase], op: str, kind: str) -> tuple[CountedCase, ...]:
    """The cases of an operation and a type by their names, capitals ignored; "" is any.

    UserError when there is no such operation, no such type, or no such case.
    """
    op, kind = op.upper(), kind.lower()
    _check_known("operation", op, {each.value for group in (Op, UnaryOp, GluOp) for each in group})
    _check_known("type", kind, {label.lower() for label in TYPE_BY_LABEL})
    found = tuple(
        counted
        for counted in cases
        if op in ("", counted.case.op.value, counted.case.op_desc)
        and (not kind or kind in {label.lower() for label in counted.case.types})
    )
    if not found:
        raise UserError(
            f"There is no case of {' '.join(part for part in (op, kind) if part) or 'anything'}.",
            "No graph of the architectures that are known has it.",
            "Leave out --op or --type to see what there is.",
        )
    return found


def _check_known(what: str, name: str, known: Collection[str]) -> None:
    if name and name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(known))}."
        raise UserError(f"There is no {what} {name}.", hint=hint)
