"""Beside the CPU backend: plans with a real BLAS, and values that stay what they were."""

from dataclasses import replace

import numpy as np
import pytest

from engine.backend.interface import Place
from engine.backends.blas.reg import create
from engine.backends.cpu.reg import create as create_cpu
from engine.backends.null import presets
from engine.core import build
from engine.core.devices import CPU_BUFT, BackendView, BufferFacts, BufferUsage
from engine.core.graph import GraphBuilder
from engine.core.options import BlasUse, Options
from engine.core.plan import Batch, BatchShape
from engine.core.table import table_of, table_of_set
from engine.core.tensor import Flag, Tensor, shape4
from engine.core.types import TensorType as T
from engine.errors import PlacementError
from engine.gguf.reader import open_gguf
from engine.machine import with_paper_gpu
from engine.model.planned_model import place
from engine.model.planning import make_planner
from engine.sched.planner import plan_graph
from engine.sched.scheduler import Scheduler
from engine.session import Session
from engine.trace.recorder import Recorder
from engine.trace.records import SpanKind
from tests.engine.nano import nano
from tests.oracle import golden
from tests.oracle.test_score import KL_BAR, kl_divergence

N = 64
CPU_ONLY = Options(devices=("none",), n_ctx=512, temperature=0, repack=False)
LONG = "The quick brown fox jumps over the lazy dog. " * 16


# --- a graph made by hand -------------------------------------------------------------------


def whole_numbers(shape, seed):
    """Products of these are exact in float32, in whatever order they are summed."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


class HandMade:
    """Products and others in turn: h = w x, s = h / 4, o = v s, k = x x, y = o + x + k."""

    def __init__(self):
        home = BufferFacts(CPU_BUFT, BufferUsage.WEIGHTS, "weights")
        self.w = Tensor(T.F32, shape4(N, N), name="w", buffer=home)
        self.v = Tensor(T.F16, shape4(N, N), name="v", buffer=home)
        self.x = Tensor(T.F32, shape4(N, N), name="x", flags=Flag.INPUT)
        self.h = build.mul_mat(self.w, self.x)
        self.s = build.scale(self.h, 0.25)
        self.o = build.mul_mat(self.v, self.s)
        self.k = build.mul_mat(self.x, self.x)
        self.y = build.add(build.add(self.o, self.x), self.k)
        builder = GraphBuilder()
        builder.expand(self.y)
        self.graph = builder.build()

    def values(self, *devices):
        """The result on these devices, and the plan, in which one product is put on the last."""
        facts = [device.facts.in_use(BlasUse.ALL) for device in devices]
        views = tuple(BackendView(fact.name, fact, fact.buft) for fact in facts)
        plan = plan_graph(
            self.graph, views, plan_id=1, batch=Batch.PROMPT, shape=BatchShape(N, N, N),
            pins={self.k: len(views) - 1},
        )  # fmt: skip
        backends = [device.init_backend() for device in devices]
        scheduler = Scheduler(backends, [d.buffer_type() for d in devices], Recorder())
        resident = {}
        for tensor, dtype in ((self.w, np.float32), (self.v, np.float16)):
            buffer = devices[-1].buffer_type().alloc_buffer(tensor.n_bytes)
            raw = whole_numbers((N, N), tensor.type + 1).astype(dtype)
            buffer.set_tensor(0, raw.reshape(-1).view(np.uint8))
            resident[tensor] = Place(buffer, 0)
        allocated = scheduler.alloc_graph(plan, resident)
        place = allocated.place_of(self.x)
        place.buffer.set_tensor(place.offset, whole_numbers((N, N), 9).reshape(-1).view(np.uint8))
        scheduler.compute(allocated, step=0)
        scheduler.synchronize()
        node = plan.run.nodes[plan.graph.nodes.index(self.y)]
        out = np.empty(node.n_bytes, np.uint8)
        place = allocated.place_of(node)
        place.buffer.get_tensor(place.offset, out)
        for backend in backends:
            backend.dispose()
        return out.view(np.float32), plan


def test_between_operations_of_the_cpu_no_bit_is_lost():
    made = HandMade()

    with_blas, plan = made.values(create().devices()[0], create_cpu().devices()[0])
    alone, _ = made.values(create_cpu().devices()[0])

    np.testing.assert_array_equal(with_blas, alone)
    rows = table_of(plan)
    tags = {(rows.op[slot], int(rows.backend[slot]), rows.tag(slot)) for slot in node_slots(rows)}
    assert {("MUL_MAT", 0, "1.wgt0"), ("MUL_MAT", 0, "3.upg")} <= tags
    assert {op for op, backend, _ in tags if backend == 1} == {"SCALE", "ADD"}
    assert len(rows.copies) == 0


def node_slots(rows):
    return range(rows.n_leafs, rows.n_leafs + rows.n_nodes)


# --- models ---------------------------------------------------------------------------------


@pytest.fixture
def session():
    made = Session()
    yield made
    made.close()


def on_blas(table):
    """(operation, tag) of every node on BLAS, views left out."""
    return [
        (table.op[slot], table.tag(slot))
        for slot in node_slots(table)
        if table.devices[int(table.backend[slot])].name == "BLAS" and not table.is_view_op[slot]
    ]


@pytest.mark.parametrize("flash_attn", ["on", "off"])
@pytest.mark.parametrize("n_gpu_layers", [0, 2])
def test_a_plan_is_that_of_blas_on_paper(flash_attn, n_gpu_layers):
    """Golden placements are checked with the one on paper."""
    options = Options(n_ctx=512, flash_attn=flash_attn, n_gpu_layers=n_gpu_layers, repack=False)
    others = presets.rpc("RPC0", 2**33), presets.cpu("CPU", 2**34)

    def columns(blas, use):
        facts = (others[0], blas, others[1])
        with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
            plans = table_of_set(make_planner(file, facts, replace(options, blas=use)).plan_set())
        return [(t.backend.tolist(), t.cause_kind.tolist(), t.splits.tolist(), on_blas(t))
                for t in (plans.prompt, plans.token)]  # fmt: skip

    real = columns(create().devices()[0].facts, BlasUse.ALL)

    assert real == columns(presets.blas("BLAS", 0), BlasUse.OFF)
    assert real[0][3] != []


def test_without_the_option_a_session_plans_nothing_on_blas(session):
    session.open(nano())

    plans = session.plan(CPU_ONLY)

    assert [row.name for row in plans.prompt.devices] == ["CPU"]
    assert "BLAS" in [device.name for device in session.devices()]


def test_a_session_plans_products_on_blas_when_that_is_asked(session):
    session.open(nano())

    plans = session.plan(replace(CPU_ONLY, blas=BlasUse.AUTO))

    assert [row.name for row in plans.prompt.devices] == ["BLAS", "CPU"]
    assert set(on_blas(plans.prompt)) == {("MUL_MAT", "1.wgt0")}
    assert on_blas(plans.token) == []
    assert {row.device for row in plans.memory.rows} == {"CPU"}


def test_a_change_of_the_option_is_planned_anew(session):
    session.open(nano())
    uses = (BlasUse.OFF, BlasUse.ALL, BlasUse.OFF)

    counts = [len(on_blas(session.plan(replace(CPU_ONLY, blas=use)).prompt)) > 0 for use in uses]

    assert counts == [False, True, False]


def logits_after(session, options):
    """Logits after a long prompt and a token, with these options."""
    session.plan(options)
    return session.score(LONG, session.prompt_tokens(" Then")[-1:] * 2).logits


@pytest.mark.parametrize("use", [BlasUse.AUTO, BlasUse.ALL])
def test_a_run_with_blas_gives_the_logits_of_the_cpu(session, use):
    session.open(nano())
    expected = [logits.copy() for logits in logits_after(session, CPU_ONLY)]

    found = logits_after(session, replace(CPU_ONLY, blas=use))

    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_a_run_records_the_time_of_each_product_on_blas(session):
    session.open(nano())
    options = replace(CPU_ONLY, blas=BlasUse.AUTO)

    session.plan(options)
    session.run(LONG, 2)

    (prompt,) = (t for t in session.met_plans.values() if t.batch is Batch.PROMPT)
    spans = session.snapshot().of_kind(SpanKind.NODE)
    # Backend 0 of the token's plan is BLAS too, and it has nothing there.
    on_first = spans[(spans["lane"] == 0) & (spans["plan_id"] == prompt.plan_id)]
    assert len(on_first) == len(on_blas(prompt)) > 0
    assert (on_first["end_ns"] > on_first["start_ns"]).all()


def test_naming_it_with_the_option_gives_it_layers(session):
    session.open(nano())
    options = replace(CPU_ONLY, devices=("BLAS",))

    plans = session.plan(replace(options, blas=BlasUse.ALL))

    # llama.cpp gives a stream to every named device and to every accelerator.
    assert [row.name for row in plans.prompt.devices] == ["BLAS", "BLAS", "CPU"]
    assert plans.layer_devices == ("CPU", *["BLAS"] * 4)
    assert len(session.run(LONG, 2).tokens) == 2


def test_naming_it_without_the_option_says_which_option(session):
    session.open(nano())

    with pytest.raises(PlacementError) as caught:
        session.plan(replace(CPU_ONLY, devices=("BLAS",)))

    assert caught.value.title == "BLAS is off."
    assert "--blas auto" in caught.value.hint


@pytest.mark.demo
def test_a_quantised_model_with_all_its_products_on_blas_keeps_within_the_bar(session, demo_model):
    session.open(str(demo_model))
    expected = [logits.copy() for logits in logits_after(session, CPU_ONLY)]

    found = logits_after(session, replace(CPU_ONLY, blas=BlasUse.ALL))

    assert all(
        kl_divergence(ours, theirs) <= KL_BAR for ours, theirs in zip(found, expected, strict=True)
    )
    plan = next(t for t in session.met_plans.values() if t.batch is Batch.PROMPT)
    assert len(on_blas(plan)) > 200


# --- what else looks at devices -------------------------------------------------------------


def test_an_accelerator_is_no_gpu_the_demo_still_gets_one_on_paper():
    devices = (create().devices()[0].facts, presets.cpu("CPU", 2**34))

    assert [facts.name for facts in with_paper_gpu(devices)] == ["GPU0", "BLAS", "CPU"]


@pytest.mark.parametrize("uses", [("auto", "all"), ("all", "auto")])
def test_a_change_of_the_option_moves_the_weights_it_concerns(uses):
    """On BLAS's layers products that it does not take are the CPU's: their weights repacked."""
    facts = (create().devices()[0].facts, presets.cpu("CPU", 2**34))

    def homes(model):
        return {name: tensor.buffer.buft.name for name, tensor in model.weights.tensors.items()}

    with open_gguf(golden.header("gemma-3-270m-q4_k_m")) as file:
        first, second = (Options(devices=("BLAS",), n_ctx=512, blas=use) for use in uses)
        before = place(file, facts, first)
        again, fresh = place(file, facts, second, before=before), place(file, facts, second)

        assert homes(again) == homes(fresh)
        assert homes(again) != homes(before)
