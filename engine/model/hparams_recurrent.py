"""Recurrence: sizes of the layers that carry a state from token to token. Source: ARCH.md 5."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.model.hparams import MOST_PER_HEAD, changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams import Hparams, LayerHparams


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Sizes in elements; every recurrent layer has the same."""

    d_conv: int
    """Tokens that the convolution looks at."""
    d_inner: int
    d_state: int
    dt_rank: int
    """Rank of the time steps; where each head has one, the number of heads."""
    n_group: int = 0
    """Heads in a group share their input and output directions; 0: there are no groups."""

    normalises_parts: bool = False
    """Whether time steps and the directions in and out are normalised."""

    @property
    def n_conv(self) -> int:
        """Channels of the convolution."""
        return self.d_inner + 2 * self.n_group * self.d_state

    @property
    def n_embd_r(self) -> int:
        """Elements of the convolution's state: the last inputs but one."""
        return (self.d_conv - 1) * self.n_conv

    @property
    def n_embd_s(self) -> int:
        """Elements of the recurrent state."""
        return self.d_state * self.d_inner

    @property
    def head_size(self) -> int:
        """Elements of a head where each has one time step."""
        return self.d_inner // self.dt_rank


def with_recurrence(
    keys: ArchKeys, hparams: Hparams, where: Sequence[bool], *, has_groups: bool
) -> Hparams:
    """`hparams` with recurrent layers `where` they are wanted.

    `has_groups`: whether heads have groups; then each head has one time step. ModelError names a
    key whose number does not divide the others.
    """
    sizes = Recurrence(
        d_conv=keys.count("ssm.conv_kernel", low=2, high=MOST_PER_HEAD),
        d_inner=keys.count("ssm.inner_size"),
        d_state=keys.count("ssm.state_size", high=MOST_PER_HEAD),
        dt_rank=keys.count("ssm.time_step_rank", high=MOST_PER_HEAD),
        n_group=keys.count("ssm.group_count", high=MOST_PER_HEAD) if has_groups else 0,
        normalises_parts=not has_groups and keys.flag("ssm.dt_b_c_rms", default=False),
    )
    if has_groups:
        _check_divides(keys, sizes)

    def recur(layer: LayerHparams) -> LayerHparams:
        return replace(layer, is_recurrent=True)

    layers = changed(hparams.layers, where, recur)
    return replace(hparams, layers=layers, recurrence=sizes)


def _check_divides(keys: ArchKeys, sizes: Recurrence) -> None:
    if sizes.d_inner % sizes.dt_rank:
        allowed = f"a divisor of {sizes.d_inner}, the ssm.inner_size"
        raise keys.wrong("ssm.time_step_rank", sizes.dt_rank, allowed)
    if sizes.dt_rank % sizes.n_group:
        allowed = f"a divisor of {sizes.dt_rank}, the ssm.time_step_rank"
        raise keys.wrong("ssm.group_count", sizes.n_group, allowed)
