"""Random graphs, support tables, priorities and pins for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.core import build
from engine.core.behaviour import PIPELINE_COPIES
from engine.core.devices import BackendView, BufferTypeFacts, DeviceType
from engine.core.ops import RopeParams
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.sched.passes.problem import Problem, number_tensors
from tests.engine.sched.drawn import (
    CPU_BUFT,
    GPU0_BUFT,
    GPU1_BUFT,
    REPACK_BUFT,
    N,
    backend,
    cache,
    constant,
    given,
    graph_of,
    weight,
)

OPS = ("MUL_MAT", "ADD", "MUL", "RMS_NORM", "SCALE", "ROPE", "SET_ROWS", "GET_ROWS", "CONT")
VIEW_KINDS = ("RESHAPE", "VIEW", "PERMUTE")
HOMES = (CPU_BUFT, GPU0_BUFT, GPU1_BUFT, REPACK_BUFT)
SMALL_CHUNKS = BufferTypeFacts("GPU1", alignment=128, max_bytes=3 * N * N * 4)


@st.composite
def backend_lists(draw) -> tuple[BackendView, ...]:
    """Up to three devices before a CPU that can do everything with host memory."""
    views = []
    for i in range(draw(st.integers(0, 3))):
        buft = draw(st.sampled_from((GPU0_BUFT, GPU1_BUFT, SMALL_CHUNKS, CPU_BUFT)))
        ops = draw(st.one_of(st.none(), st.sets(st.sampled_from(OPS))))
        views.append(
            backend(
                f"B{i}",
                buft,
                draw(st.sampled_from((DeviceType.GPU, DeviceType.ACCEL))),
                ops=ops,
                bufts=draw(st.sets(st.sampled_from(("CPU", "GPU0", "CPU_REPACK")), max_size=1)),
                offload=draw(st.sampled_from((None, 1, N))),
            )
        )
    every = ("GPU0", "GPU1", "CPU_REPACK") if draw(st.booleans()) else ("CPU_REPACK",)
    last = backend("CPU", CPU_BUFT, DeviceType.CPU, host_bufts=True, bufts=every)
    return (*views, last)


class Maker:
    """Grows a graph one operation at a time; every value is [N, rows]."""

    def __init__(self, draw, homes: tuple[BufferTypeFacts, ...], rows: int) -> None:
        self.draw = draw
        self.homes = homes
        self.rows = rows
        self.ids = given("ids", rows, tensor_type=TensorType.I64)
        self.positions = given("positions", rows, tensor_type=TensorType.I32)
        self.values: list[Tensor] = [given("x", N, rows)]
        self.ends: list[Tensor] = []

    def pick(self):
        return self.draw(st.sampled_from(self.values[-4:]))

    def home(self):
        return self.draw(st.sampled_from(self.homes))

    def grow(self, kind: str, i: int) -> None:
        name = f"{kind.lower()}{i}"
        x = self.pick()
        made = getattr(self, f"make_{kind.lower()}")(x, f"w{i}")
        made.name = name
        if self.draw(st.integers(0, 9)) == 0:
            made.flags |= Flag.OUTPUT
        if kind == "SET_ROWS":
            self.ends.append(made)
        else:
            self.values.append(made)

    def make_mul_mat(self, x, name):
        return build.mul_mat(weight(name, self.home()), x)

    def make_add(self, x, name):
        others = [self.pick(), constant(name, N, self.rows), weight(name, self.home(), N)]
        return build.add(x, self.draw(st.sampled_from(others)))

    def make_mul(self, x, name):
        return build.mul(x, weight(name, self.home(), N))

    def make_rms_norm(self, x, name):
        return build.rms_norm(x, 1e-5)

    def make_scale(self, x, name):
        return build.scale(x, 2.0)

    def make_rope(self, x, name):
        factors = weight(name, self.home(), N // 2) if self.draw(st.booleans()) else None
        shaped = build.reshape(x, N, 1, self.rows) if x.is_contiguous else x
        rotated = build.rope(shaped, self.positions, factors, RopeParams(N))
        rotated.name = f"{name} rotated"
        return build.reshape(rotated, N, self.rows)

    def make_set_rows(self, x, name):
        return build.set_rows(cache(name, self.home(), N, 64), x, self.ids)

    def make_get_rows(self, x, name):
        return build.get_rows(weight(name, self.home(), N, 64), self.positions)

    def make_cont(self, x, name):
        return build.cont(x)

    def make_reshape(self, x, name):
        return build.reshape(x, N, self.rows)

    def make_view(self, x, name):
        return build.view(x, (N, self.rows), (x.nb[1],))

    def make_permute(self, x, name):
        return build.permute(x, (0, 1, 2, 3))


@st.composite
def problems(draw) -> Problem:
    """A whole question to the passes. Weights lie in memory that some backend reads."""
    views = draw(backend_lists())
    homes = tuple(h for h in HOMES if any(v.rules.supports_buft(h) for v in views))
    maker = Maker(draw, homes, draw(st.sampled_from((1, N))))
    kinds = draw(st.lists(st.sampled_from((*OPS, *VIEW_KINDS)), min_size=1, max_size=16))
    for i, kind in enumerate(kinds):
        maker.grow(kind, i)
    graph = graph_of(*maker.ends, *(v for v in maker.values if v.op.value != "NONE"))
    slots = number_tensors(graph)
    node_slots = st.sampled_from(list(slots.node_slots))
    pins = draw(st.dictionaries(node_slots, st.integers(0, len(views) - 1), max_size=2))
    n_copies = draw(st.sampled_from((1, PIPELINE_COPIES)))
    return Problem(
        slots,
        views,
        op_offload=draw(st.booleans()),
        user=pins,
        n_copies=n_copies,
        copy_slot=draw(st.integers(0, n_copies - 1)),
    )
