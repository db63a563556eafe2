"""why: why a node, or a weight, is where it is."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

from engine.cli import output
from engine.cli.output import print_json
from engine.cli.parser import add_model, command_parser
from engine.cli.sessions import planned
from engine.core.explain import explain
from engine.core.plan import Batch
from engine.core.why_text import plain, why_text
from engine.errors import ModelError

if TYPE_CHECKING:
    import argparse

    from engine.core.table import PlanTable


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
    """Print who decided, why, and what each device answered."""
    planning = planned(args)
    table = planning.plans.plan(Batch(args.batch))
    explanation = explain(table, find_slot(table, args.node))
    if args.json:
        sentence = plain(explanation.sentence)
        print_json(output.plain(explanation) | {"sentence": sentence} | planning.problem_data())
    else:
        print(why_text(explanation))
    return 0


def find_slot(table: PlanTable, text: str) -> int:
    """The slot that `#index`, `name` or `name@occurrence` names; ModelError says what there is."""
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
    raise _ambiguous(table, text, named) if named else _no_node(table, text)


def _by_index(table: PlanTable, node_id: int) -> int:
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
        print(f"{name} is there {len(slots)} times: {there}. This is the first.", file=sys.stderr)
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


def _no_node(table: PlanTable, text: str) -> ModelError:
    names = sorted(set(table.name))
    near = [name for name in names if text in name][:N_NEAR]
    near = near or difflib.get_close_matches(text, names, n=N_NEAR)
    nodes = "Names of nodes: python -m engine plan MODEL --json"
    hint = f"Near it: {', '.join(near)}. {nodes}" if near else nodes
    return ModelError(f"There is no node or weight called {text}.", hint=hint)
