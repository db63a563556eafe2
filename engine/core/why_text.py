"""why_text: an explanation as plain text, the same words in the window and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.explain import Test

if TYPE_CHECKING:
    from engine.core.explain import Candidate, Explanation

YES, NO, NOT_ASKED = "\u2713", "\u2715", "\u2013"


def why_text(explanation: Explanation) -> str:
    """Who decided, the sentence, and what each device answered; ends without a newline."""
    node = f"  #{explanation.node_id}" if explanation.node_id >= 0 else ""
    lines = [
        f"{explanation.title}{node}",
        explanation.facts,
        plain(explanation.sentence),
        "",
        f"Decided in  {explanation.decided}  [{explanation.tag}]",
        f"Neighbour   {explanation.neighbour}",
        "",
        *_table(explanation),
        "",
        "[ ] first test that failed; \u2013 not asked",
    ]
    return "\n".join(lines)


def plain(sentence: str) -> str:
    """A sentence without its `**` marks."""
    return sentence.replace("**", "")


def shown_tests(explanation: Explanation) -> tuple[Test, ...]:
    """Columns of the candidates table; `reached` is asked by the sweeps of pass 2 only."""
    first = (Test.REACHED,) if explanation.shows_reached else ()
    return (*first, Test.SUPPORTS_OP, Test.SUPPORTS_BUFT, Test.OFFLOAD_OP)


def answer_mark(candidate: Candidate, test: Test) -> str:
    """What a device answered to a test: a tick, a cross, or a dash where it was not asked."""
    answer: bool | None = getattr(candidate, test.value)
    if answer is None:
        return NOT_ASKED
    return YES if answer else NO


def _table(explanation: Explanation) -> list[str]:
    tests = shown_tests(explanation)
    rows = [("Device", *(test.value for test in tests), "prio")]
    for candidate in explanation.candidates:
        marks = [
            f"[{mark}]" if candidate.first_failed is test else mark
            for test in tests
            for mark in (answer_mark(candidate, test),)
        ]
        rows.append((candidate.device, *marks, str(candidate.backend_id)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
