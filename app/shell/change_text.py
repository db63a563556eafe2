"""The change bar: what a change of options changed, in both batches. Pure; markup of `markup`."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from app.theme.text import MIB, MINUS, SPACE, bytes_text, count, plural, signed
from app.views.options.values import text_of
from engine.core.options import ALL_LAYERS, SPEC_BY_FIELD, Options, Redo, redo_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.diff import PlanDiff, SetDiff
    from engine.core.options import TensorOverride

OFFLOAD_MIN_BATCH = 32
"""From how many tokens a GPU asks for operations whose weights lie elsewhere (ggml)."""

MAX_CHANGES = 3
MAX_RULES = 2
MAX_PATTERN = 32
"""What a title has room for: options, rules, and signs of a pattern."""

AT_NEXT_RUN = "applies at the next run"
FROM_NEXT_GRAPH = "acts from the next graph on"


def change_title(was: Options, now: Options, n_layers: int, n_ctx_train: int = 0) -> str:
    """What was changed, in llama.cpp's words: "op_offload on → off", "-ngl 2 → 31".

    `n_ctx_train` is what ctx 0 stands for; 0 where the model does not say.
    """
    parts = []
    for item in fields(Options):
        before, after = getattr(was, item.name), getattr(now, item.name)
        if before == after:
            continue
        if item.name == "tensor_overrides":
            change = _rules_change(before, after)
        else:
            values = (_value(item.name, v, n_layers, n_ctx_train) for v in (before, after))
            change = " → ".join(values)
        parts.append(f"{_option_name(item.name)} {change}")
    if len(parts) > MAX_CHANGES:
        return f"{len(parts)} options changed"
    # Two stars are markup, and a pattern may hold them.
    return ", ".join(parts).replace("**", "*\u2060*")


def change_note(was: Options, now: Options) -> str:
    """When a change that is made during a run acts; the sampler is made when a run begins."""
    is_late = not redo_of(was, now).isdisjoint({Redo.CONTEXT, Redo.SAMPLER})
    return AT_NEXT_RUN if is_late else FROM_NEXT_GRAPH


def change_facts(diff: SetDiff, title: str, note: str = "") -> tuple[str, ...]:
    """Facts about the prompt's plan, most important first; `note` says when it acts."""
    notes = (note,) if note else ()
    totals, memory = _totals(diff.prompt), _memory(diff)
    return (f"**{title}**", *notes, _moved(diff.prompt), *totals, *memory)


def token_facts(diff: SetDiff, title: str) -> tuple[str, ...]:
    """Facts about a token's plan; "no effect" is said, with the rule's number."""
    token = diff.token
    if token.is_empty:
        rule = f", the rule starts at {OFFLOAD_MIN_BATCH}" if title.startswith("op_offload") else ""
        return (f"one token: no effect{rule}",)
    moved = f"{plural(len(token.moved), 'node')} moved" if token.moved else "no node moves"
    return (f"one token: {moved}", *_totals(token))


def _option_name(field: str) -> str:
    if field == "n_ctx":
        return "ctx"
    return field if SPEC_BY_FIELD[field].kind is bool else SPEC_BY_FIELD[field].flags[0]


def _value(field: str, value: Any, n_layers: int, n_ctx_train: int) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if field == "n_ctx":
        n_tokens = value or n_ctx_train
        return count(n_tokens) if n_tokens else "the model's"
    if field == "n_gpu_layers" and (value == ALL_LAYERS or value > n_layers):
        return str(n_layers + 1)
    return text_of(field, value)


def _rules_change(was: Sequence[TensorOverride], now: Sequence[TensorOverride]) -> str:
    """Rules that came and went; large changes are counted."""
    added = [rule for rule in now if rule not in was]
    removed = [rule for rule in was if rule not in now]
    if not added and not removed:
        return "in another order"
    if len(added) + len(removed) <= MAX_RULES:
        named = [f"+{_short(rule)}" for rule in added] + [f"{MINUS}{_short(r)}" for r in removed]
        return " ".join(named)
    counted = (f"+{plural(len(added), 'rule')}", f"{MINUS}{plural(len(removed), 'rule')}")
    return " ".join(c for c, rules in zip(counted, (added, removed), strict=True) if rules)


def _short(rule: TensorOverride) -> str:
    pattern = rule.pattern
    if len(pattern) > MAX_PATTERN:
        pattern = f"{pattern[: MAX_PATTERN // 2]}…{pattern[-MAX_PATTERN // 2 :]}"
    return f"{pattern}={rule.buft}"


def _moved(diff: PlanDiff) -> str:
    if not diff.moved:
        return "no node moves"
    targets = Counter(node.now_device for node in diff.moved).most_common()
    (device, n), *others = targets
    verb = "moves" if n == 1 else "move"
    text = f"{{more:{count(n)}}} {'node' if n == 1 else 'nodes'} {verb} to {device}"
    return text + "".join(f", {count(n)} to {device}" for device, n in others)


def _totals(diff: PlanDiff) -> list[str]:
    """Splits, copies and bytes that changed."""
    facts = []
    if diff.splits_was != diff.splits_now:
        facts.append(_change("splits", diff.splits_was, diff.splits_now))
    if diff.copies_was != diff.copies_now:
        facts.append(_change("copies", diff.copies_was, diff.copies_now))
    if diff.copied_bytes_was != diff.copied_bytes_now:
        facts.append(_bytes_change("copied", diff.copied_bytes_was, diff.copied_bytes_now))
    return facts


def _memory(diff: SetDiff) -> list[str]:
    """What each device holds more or less."""
    changes: dict[str, int] = {}
    for item in diff.memory:
        grown = item.now_bytes - item.was_bytes
        changes[item.device] = changes.get(item.device, 0) + grown
    return [
        f"{device} {_side(n, f'{signed(n / MIB, 2)}{SPACE}MiB')}"
        for device, n in changes.items()
        if abs(n) >= MIB // 100
    ]


def _change(word: str, was: int, now: int) -> str:
    return f"{word} `{count(was)} → {count(now)}` {_side(now - was, signed(now - was))}"


def _bytes_change(word: str, was: int, now: int) -> str:
    if max(was, now) < MIB:
        sign = "+" if now > was else ""
        change = sign + bytes_text(now - was)
        return f"{word} `{bytes_text(was)} → {bytes_text(now)}` {_side(now - was, change)}"
    figures = f"{count(was / MIB, 2)} → {count(now / MIB, 2)} MiB"
    return f"{word} `{figures}` {_side(now - was, signed((now - was) / MIB, 2))}"


def _side(difference: int, text: str) -> str:
    return f"{{{'less' if difference < 0 else 'more'}:{text}}}"
