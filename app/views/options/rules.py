"""Rules for weights by name: what each matches in a model, and what is wrong with it. Pure.

llama.cpp asks the rules in order and takes the first whose pattern is found in a weight's name.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

from app.theme.text import bytes_text, count, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.options import TensorOverride
    from engine.core.summary import TensorSummary

PATIENCE_S = 0.1
"""For all names together; a pattern that takes longer is one that may take forever."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """What a rule comes to. `n_taken` of the `n_found` belong to a rule above it."""

    n_found: int = 0
    n_bytes: int = 0
    n_taken: int = 0
    problem: str = ""
    """Why it is not used; empty for one that is."""
    is_empty: bool = False
    """Nothing was typed yet: not used either, and no fault."""

    @property
    def is_used(self) -> bool:
        """Whether it is a rule at all."""
        return not self.problem and not self.is_empty

    @property
    def words(self) -> str:
        """What stands below the rule."""
        if self.problem or self.is_empty:
            return self.problem or "Type a part of a weight's name; a pattern may be used."
        if not self.n_found:
            return "matches no tensor of this model"
        n_own = self.n_found - self.n_taken
        if not n_own:
            owner = "belongs" if self.n_found == 1 else "belong"
            return f"no effect: {plural(self.n_found, 'tensor')} {owner} to a rule above"
        words = f"matches {plural(n_own, 'tensor')}, {bytes_text(self.n_bytes)}"
        return f"{words}; {count(self.n_taken)} more by a rule above" if self.n_taken else words


def rules_facts(
    rules: Sequence[TensorOverride], tensors: Sequence[TensorSummary]
) -> tuple[RuleFacts, ...]:
    """The facts of each rule, in order."""
    facts: list[RuleFacts] = []
    taken: set[str] = set()
    for rule in rules:
        problem = pattern_problem(rule.pattern)
        if problem or not rule.pattern:
            facts.append(RuleFacts(problem=problem, is_empty=not rule.pattern))
            continue
        found = _found(rule.pattern, tensors)
        if found is None:
            facts.append(RuleFacts(problem="Not used: this pattern takes too long to search for."))
            continue
        own = [tensor for tensor in found if tensor.name not in taken]
        facts.append(
            RuleFacts(len(found), sum(t.n_bytes for t in own), n_taken=len(found) - len(own))
        )
        taken |= {tensor.name for tensor in own}
    return tuple(facts)


def pattern_problem(pattern: str) -> str:
    """Why a pattern cannot be used; empty if it can."""
    for sign, meaning in ((",", "the next rule begins"), ("=", "the memory's name begins")):
        if sign in pattern:
            return f"Not used: at a {sign} {meaning} on the command line."
    try:
        re.compile(pattern)
        regex.compile(pattern)
    except (re.error, regex.error) as error:
        place = "" if error.pos is None else f", at character {error.pos + 1}"
        return f"Not used: no regular expression: {error.msg}{place}."
    return ""


def _found(pattern: str, tensors: Sequence[TensorSummary]) -> list[TensorSummary] | None:
    """The tensors whose name holds the pattern; None if that takes too long to find out."""
    compiled = regex.compile(pattern)
    ends = time.monotonic() + PATIENCE_S
    found = []
    for tensor in tensors:
        left_s = ends - time.monotonic()
        try:
            if left_s <= 0:
                return None
            if compiled.search(tensor.name, timeout=left_s):
                found.append(tensor)
        except TimeoutError:
            return None
    return found
