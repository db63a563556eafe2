"""How work is cut into items on each kind of device."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tuning:
    """How work is cut into items on one kind of device.

    `group_items` items along dimension 0 form a work-group. `chunk_elems` of a row are one item of
    an elementwise kernel and of rounding. `vec_rows` weight rows are one item of mul_mat_vec, which
    takes batches of up to `max_vec_columns`, or so many an expert; larger ones go to mul_mat_tile
    with up to `tile_columns` an item, or to mul_mat_id_tile with `expert_rows` rows an item.
    `rope_heads` heads share the angles one item computes. `queries` of a head are one item of
    attention. With `whole_numbers` mul_mat_vec takes activations as whole numbers where the weights
    have a product for them (whole.cl). Sums and norms of up to `chained_elems` share an item with
    what follows them (norm_chain.cl). With `steps` many launches become steps of one (steps.cl).
    `build_options` choose between variants inside .cl files.
    """

    group_items: int
    chunk_elems: int
    vec_rows: int
    max_vec_columns: int
    tile_columns: int
    expert_rows: int
    rope_heads: int
    queries: int
    whole_numbers: bool
    chained_elems: int
    steps: bool
    build_options: tuple[str, ...]


CPU_TUNING = Tuning(
    group_items=1,
    chunk_elems=2048,
    vec_rows=16,
    max_vec_columns=1,
    tile_columns=128,
    expert_rows=64,
    rope_heads=1 << 20,
    queries=16,
    whole_numbers=True,
    chained_elems=8192,
    steps=True,
    build_options=("-DDEVICE_CPU", "-DQUERIES=16"),
)
"""Few fat items: a CPU device runs an item as a loop, and a group as a function call."""

GPU_TUNING = Tuning(
    group_items=64,
    chunk_elems=8,
    vec_rows=1,
    max_vec_columns=1 << 20,
    tile_columns=4,
    expert_rows=4,
    rope_heads=1,
    queries=1,
    whole_numbers=False,
    chained_elems=0,
    steps=False,
    build_options=("-DQUERIES=1",),
)
"""Many thin items; tiles are meant for CPUs and not used."""

POCL = "Portable Computing Language"
"""The platform on whose devices steps have been tried: they need clang's atomics in its C."""


def tuning_for(platform: str, *, is_cpu: bool) -> Tuning:
    """How a device of `platform` is driven."""
    if not is_cpu:
        return GPU_TUNING
    return replace(CPU_TUNING, steps=platform == POCL)
