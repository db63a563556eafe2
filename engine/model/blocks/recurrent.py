"""States that recurrent layers carry on: begun, picked, written back. Source: ARCH.md 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.core import build
from engine.core.build_recurrent import scale_inplace
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKind
from engine.model.recurrent_state import N_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.hparams import Hparams
    from engine.model.hparams_recurrent import Recurrence


class StateRows(NamedTuple):
    """Rows of the states: those of the batch's sequences, and others to be moved; i32."""

    own: Tensor
    moved: Tensor


def recurrent_sizes(hparams: Hparams) -> Recurrence:
    """The sizes of the recurrent layers of a model that has some."""
    assert hparams.recurrence is not None, hparams.arch
    return hparams.recurrence


def state_rows(ctx: GraphContext) -> StateRows:
    """The rows of one sequence; with one there is none to be moved."""
    ids = ctx.input(InputKind.STATE_ROWS, TensorType.I32, N_ROWS)
    return StateRows(build.view(ids, (N_ROWS,)), build.view(ids, (0,), (), ids.nb[1]))


def picked_states(
    ctx: GraphContext,
    state: Tensor,
    rows: StateRows,
    pick: Callable[[Tensor, Tensor], Tensor] = build.get_rows,
) -> Tensor:
    """What `pick` makes of all states and the batch's rows, once new ones are set to zero.

    `state` is f32 [n, rows]. Nodes without elements stand for what this batch does not need.
    """
    n_embd, n_rows, _, _ = state.ne
    states = build.reshape(state, n_embd, n_rows)
    begun = build.view(states, (n_embd if ctx.shape.clears_state else 0,))
    ctx.builder.expand(scale_inplace(begun, 0.0))
    picked = pick(states, rows.own)
    ctx.builder.expand(picked)
    moved = build.get_rows(states, rows.moved)
    n_own, n_moved = rows.own.ne[0], rows.moved.ne[0]
    target = build.view(state, (n_embd, n_moved), (state.nb[1],), n_own * state.nb[1])
    ctx.builder.expand(build.cpy(moved, target))
    return picked


def store_state(ctx: GraphContext, new: Tensor, state: Tensor, name: str = "") -> None:
    """Write `new`, of as many elements as a row, into the batch's row; `name` is that place's."""
    target = build.view(state, (state.ne[0],))
    if name:
        target.name = name
    ctx.builder.expand(build.cpy(new, target))
