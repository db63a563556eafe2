"""why: why a node, or a weight, is where it is."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from engine.cli import output
from engine.cli.measuring import say
from engine.cli.output import mib, print_json
from engine.cli.parser import add_model, command_parser
from engine.cli.sessions import planned
from engine.core.explain import explain
from engine.core.plan import Batch
from engine.core.visible import visible
from engine.core.why_text import plain, why_text
from engine.errors import ModelError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from engine.core.explain import Explanation
    from engine.core.table import PlanTable
    from engine.report.weight_places import WeightPlace


N_NEAR = 3
"""How many names a name that is not there may have stood for."""


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "why", "why a node or a weight is where it is", execute)
    add_model(parser)
    parser.add_argument(
        "node", metavar="NODE", help="#index, or a name; norm-0@2 is the third node of that name"
    )


def execute(args: argparse.Namespace) -> int:
    """Print who decided, why, and what each device answered; of a weight also how it got there."""
    planning = planned(args, re.sub(r"@\d+$", "", args.node))
    table, places = planning.plans.plan(Batch(args.batch)), planning.places
    # A weight that no node reads is in no table; it is in a memory all the same.
    is_unread = places and places[0].name not in set(table.name)
    slot = -1 if is_unread else find_slot(table, args.node, planning.weights)
    explanation = None if slot < 0 else explain(table, slot)
    if args.json:
        print_json(_data(explanation, places) | planning.problem_data())
        return 0
    texts = [] if explanation is None else [why_text(explanation)]
    print(visible("\n\n".join((*texts, *map(_place_text, places))), keeps="\n"))
    return 0


def _data(explanation: Explanation | None, places: Sequence[WeightPlace]) -> dict[str, Any]:
    """All of it; sentences without marks."""
    data: dict[str, Any] = {}
    if explanation is not None:
        data = output.plain(explanation) | {"sentence": plain(explanation.sentence)}
    if places:
        data["places"] = [output.plain(place) | {"sentence": place.sentence} for place in places]
    return data


def _place_text(place: WeightPlace) -> str:
    """One role of a weight: where it is, why, and what memories were tried."""
    role = f", as {place.role}" if place.role != place.name else ""
    ne = " x ".join(map(str, place.ne))
    lines = [
        f"{place.name}{role}",
        f"{place.type} {ne}, {mib(place.n_bytes)} MiB, read by {place.op}",
        place.sentence,
        *(
            f"  {'suits' if memory.suits else 'does not'}  {memory.buffer_type} ({memory.device})"
            for memory in place.tried
        ),
    ]
    return "\n".join(lines)


def find_slot(table: PlanTable, text: str, weights: Sequence[str] = ()) -> int:
    """The slot that `#index`, `name` or `name@occurrence` names; ModelError says what there is.

    `weights` (optional) are names that stand in the file, planned or not.
    """
    if text.startswith("#") and text[1:].isdecimal():
        return _by_index(table, int(text[1:]))
    name, _, occurrence = text.rpartition("@")
    if name and occurrence.isdecimal():
        named, i_named = _named(table, name), int(occurrence)
        if i_named < len(named):
            return named[i_named]
    else:
        named = _named(table, text)
        if named and (len(named) == 1 or named[0] < table.n_leafs):
            return _first_leaf(table, named)
    raise _ambiguous(table, text, named) if named else _no_node(table, text, weights)


def _by_index(table: PlanTable, node_id: int) -> int:
    if not table.n_nodes:
        raise ModelError(
            f"There is no node #{node_id}.", "No operation of this model is planned.",
            "Name one of its weights: python -m engine tensors MODEL",
        )  # fmt: skip
    if node_id >= table.n_nodes:
        raise ModelError(
            f"There is no node #{node_id}.", f"This plan has nodes #0 to #{table.n_nodes - 1}."
        )
    return table.slot(node_id)


def _named(table: PlanTable, name: str) -> list[int]:
    """Slots of that name: of nodes in execution order, else of a leaf."""
    slots = [slot for slot in range(len(table.name)) if table.name[slot] == name]
    return [slot for slot in slots if slot >= table.n_leafs] or slots


def _first_leaf(table: PlanTable, slots: list[int]) -> int:
    """The first; a weight that is in two memories, such as a tied output, says so."""
    if len(slots) > 1:
        name = table.name[slots[0]]
        there = ", ".join(f"{name}@{i} in {_place(table, slot)}" for i, slot in enumerate(slots))
        say([f"{name} is there {len(slots)} times: {there}. This is the first."])
    return slots[0]


def _place(table: PlanTable, slot: int) -> str:
    """What tells a tensor from others of its name: a node's index, a leaf's memory."""
    if slot >= table.n_leafs:
        return f"#{slot - table.n_leafs} {table.op[slot]}"
    home = int(table.home[slot])
    return table.bufts[home] if home >= 0 else "no memory of its own"


def _ambiguous(table: PlanTable, text: str, slots: list[int]) -> ModelError:
    listed = ", ".join(
        f"{table.name[slot]}@{i} ({_place(table, slot)})" for i, slot in enumerate(slots)
    )
    kind = "node" if slots[0] >= table.n_leafs else "leaf"
    what = f"One {kind} has" if len(slots) == 1 else f"{len(slots)} {kind}s have"
    return ModelError(f"{what} that name: {listed}.", hint=f"Name one of them instead of {text}")


def _no_node(table: PlanTable, text: str, weights: Sequence[str]) -> ModelError:
    names = sorted({*table.name, *weights})
    near = [name for name in names if text in name][:N_NEAR]
    near = near or difflib.get_close_matches(text, names, n=N_NEAR)
    nodes = "Names of nodes: python -m engine plan MODEL --json"
    if not table.n_nodes:
        nodes = "Names of weights: python -m engine tensors MODEL"
    hint = f"Near it: {', '.join(near)}. {nodes}" if near else nodes
    return ModelError(f"There is no node or weight called {text}.", hint=hint)
