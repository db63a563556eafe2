"""Which memory suits a weight: a device must run its operation from there.

Source: SCHED.md 8.2 (llama-model-loader.cpp, weight_buft_supported).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.build_recurrent import ssm_conv, ssm_scan
from engine.core.devices import BufferFacts, BufferUsage
from engine.core.ops import Op, RopeParams
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.model.hparams import Hparams
    from engine.model.placement import MemorySpot

PROBE_TOKENS = 512
"""The batch that a weight's operation is tried with."""

PROBE_SEQUENCES = 3
"""Its texts, where the operation tells them apart."""


def choose_spot(
    spots: Sequence[MemorySpot], weight: Tensor, op: Op, hparams: Hparams
) -> MemorySpot:
    """The first spot that suits; PlacementError names the weight when none does."""
    spot = first_spot(spots, weight, op, hparams)
    if spot is not None:
        return spot
    tried = dict.fromkeys(f"{spot.device.name} ({spot.buft.name})" for spot in spots)
    raise PlacementError(
        f"No device can hold {weight.name}.",
        f"None runs {op.value} with {weight.type.label} weights; tried: {', '.join(tried)}.",
        "Choose another quantisation of the model, or other devices (-dev).",
    )


def first_spot(
    spots: Sequence[MemorySpot], weight: Tensor, op: Op, hparams: Hparams
) -> MemorySpot | None:
    """The first spot whose device runs the weight's operation from there."""
    return next((spot for spot in spots if _runs_from(spot, weight, op, hparams)), None)


def _runs_from(spot: MemorySpot, weight: Tensor, op: Op, hparams: Hparams) -> bool:
    home = BufferFacts(spot.buft, BufferUsage.WEIGHTS)
    placed = Tensor(weight.type, weight.ne, name=weight.name, buffer=home)
    return spot.device.rules.supports_op(probe_op(placed, op, hparams))


def probe_op(weight: Tensor, op: Op, hparams: Hparams) -> Tensor:
    """The operation a weight is used with, on a batch of 512 where it has one."""
    f32, i32 = TensorType.F32, TensorType.I32
    ne0, layer = weight.ne[0], hparams.layers[0]
    if op is Op.GET_ROWS:
        return build.get_rows(weight, Tensor(i32, (PROBE_TOKENS, 1, 1, 1)))
    if op is Op.MUL_MAT:
        return build.mul_mat(weight, Tensor(f32, (ne0, PROBE_TOKENS, *weight.ne[2:])))
    if op in (Op.MUL_MAT_ID, Op.ADD_ID):
        n_used = max(layer.n_expert_used for layer in hparams.layers)
        x = Tensor(f32, (ne0, n_used, PROBE_TOKENS, 1))
        ids = Tensor(i32, (n_used, PROBE_TOKENS, 1, 1))
        is_product = op is Op.MUL_MAT_ID
        return build.mul_mat_id(weight, x, ids) if is_product else build.add_id(x, weight, ids)
    if op is Op.ROPE:
        # Heads may be of several sizes: those of the first layer may be too short.
        n_embd_head = max(layer.n_embd_head_v, 2 * ne0)
        x = Tensor(f32, (n_embd_head, layer.n_head, PROBE_TOKENS, 1))
        positions = Tensor(i32, (PROBE_TOKENS, 1, 1, 1))
        return build.rope(x, positions, weight, RopeParams(ne0 * 2))
    if op is Op.SSM_CONV:
        x = Tensor(f32, (ne0 - 1 + PROBE_TOKENS, weight.ne[1], PROBE_SEQUENCES, 1))
        return ssm_conv(x, weight)
    if op is Op.SSM_SCAN:
        return _probe_scan(weight, hparams)
    if op is Op.SCALE:
        return build.scale(weight, 1.0)
    assert op in (Op.MUL, Op.ADD), op
    return build.binary(op, Tensor(f32, weight.ne), weight)


def _probe_scan(decays: Tensor, hparams: Hparams) -> Tensor:
    """A scan with decays a head, or a channel and a state."""
    sizes, f32 = hparams.recurrence, TensorType.F32
    assert sizes is not None, hparams.arch
    d_state = sizes.d_state if decays.ne[0] == 1 else decays.ne[0]
    n_head, n_seqs = decays.ne[1], PROBE_SEQUENCES
    head = sizes.d_inner // n_head
    direction = (d_state, max(sizes.n_group, 1), PROBE_TOKENS, n_seqs)
    return ssm_scan(
        Tensor(f32, (d_state, head, n_head, n_seqs)),
        Tensor(f32, (head, n_head, PROBE_TOKENS, n_seqs)),
        Tensor(f32, (n_head, PROBE_TOKENS, n_seqs, 1)),
        decays,
        Tensor(f32, direction),
        Tensor(f32, direction),
        Tensor(TensorType.I32, (n_seqs, 1, 1, 1)),
    )
