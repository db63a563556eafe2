"""Explanations: words for every cause, and evidence that decides what was decided."""

import dataclasses

import numpy as np
import pytest

from engine.core import build
from engine.core.explain import Test, explain
from engine.core.placement import CauseKind
from engine.core.plan import Batch, BatchShape, NodeKey
from engine.core.table import table_of
from engine.core.why_text import plain, shown_tests, why_text
from engine.sched.planner import plan_graph
from tests.engine.model.smollm2 import recorded, tables
from tests.engine.sched.drawn import (
    CPU_BUFT,
    GPU0_BUFT,
    REPACK_BUFT,
    N,
    blas,
    constant,
    cpu,
    given,
    gpu,
    graph_of,
    matmul,
    named,
    norm,
    weight,
)

RUNS = ("cpu-norpc", "ngl0-norepack", "ngl2-offload", "ngl2-no-op-offload", "ngl-all-1dev")
PAPER = ("two", "blas", "no-rms-norm", "no-attention")
SWEEPS = (CauseKind.GPU_DOWN, CauseKind.GPU_UP, CauseKind.REST_DOWN, CauseKind.REST_UP)


@pytest.fixture(params=[(name, batch) for name in (*RUNS, *PAPER) for batch in Batch], ids=" ".join)
def table(request):
    """A plan of SmolLM2."""
    name, batch = request.param
    plans = recorded(name) if name in RUNS else tables(name, n_gpu_layers=2)
    return plans.plan(batch)


@pytest.fixture(scope="module")
def offloaded():
    return recorded("ngl2-offload").prompt


def slot_of(table, name, occurrence=0):
    return table.slot(table.node_ids()[NodeKey(name, occurrence)])


def drawn(*outputs, on, pins=None):
    """The table of a small plan."""
    plan = plan_graph(
        graph_of(*outputs),
        on,
        plan_id=1,
        batch=Batch.PROMPT,
        shape=BatchShape(N, 256, N),
        pins=pins,
    )
    return table_of(plan)


def sentence(table, name):
    return plain(explain(table, list(table.name).index(name)).sentence)


# The evidence.


def replayed(kind, candidates):
    """The device that a card's answers lead to, by the rule of its cause."""
    if kind is CauseKind.OFFLOADED:
        return next(c for c in candidates if c.supports_op and c.offload_op)
    if kind in (CauseKind.PREALLOCATED, CauseKind.WEIGHT):
        return next(c for c in candidates if c.supports_op and c.supports_buft)
    if kind in SWEEPS:
        return next(c for c in candidates if c.reached and c.supports_op)
    if kind is CauseKind.GRAPH_INPUT:
        return candidates[-1]
    return next(c for c in candidates if c.chosen)


def test_the_evidence_of_every_card_leads_to_the_device_it_names(table):
    for slot in range(table.n_leafs + table.n_nodes):
        card = explain(table, slot)
        kind = table.cause(slot).kind
        assert replayed(kind, card.candidates).backend_id == card.backend_id, card.title
        assert [c.backend_id for c in card.candidates if c.chosen] == [card.backend_id]


def test_a_device_that_was_kept_out_failed_the_test_that_is_marked(table):
    for slot in range(table.n_leafs + table.n_nodes):
        for candidate in explain(table, slot).candidates:
            if candidate.first_failed is not None:
                assert getattr(candidate, candidate.first_failed.value) is False
            if candidate.chosen:
                assert candidate.first_failed is None


def test_nobody_wanted_an_operation_that_stayed_with_its_weight(table):
    for slot in np.flatnonzero(table.cause_kind == CauseKind.WEIGHT):
        assert not any(c.offload_op for c in explain(table, int(slot)).candidates)


def test_devices_after_the_one_that_asked_are_not_asked():
    both = (gpu("GPU0", offload=N), gpu("GPU1", offload=N), cpu())
    table = drawn(matmul("a", weight("w", CPU_BUFT), given("x")), on=both)

    card = explain(table, list(table.name).index("a"))

    assert [c.offload_op for c in card.candidates] == [True, None, None]


# The words.


def test_every_cause_has_its_own_words(offloaded):
    words = {}
    for kind in CauseKind:
        kinds = np.array(offloaded.cause_kind)
        slot = slot_of(offloaded, "attn_norm-0")
        kinds[slot] = kind
        changed = dataclasses.replace(offloaded, cause_kind=kinds)
        card = explain(changed, slot)
        words[kind] = card.sentence
        assert card.sentence.endswith(".")
        assert card.decided
        assert card.tag == changed.tag(slot)

    # Sweeps differ by their names only; both kinds of copies, and both homes, are told alike.
    assert len(set(words.values())) >= len(CauseKind) - 2


def test_an_offloaded_operation_says_who_asked(offloaded):
    assert sentence(offloaded, "attn_norm-0") == (
        "On RPC0 because its weight blk.0.attn_norm.weight is in host memory and RPC0 asked for "
        "it: op_offload is on and the batch (512 tokens) is large enough."
    )


def test_an_operation_beside_its_weight_says_what_was_refused():
    token = recorded("ngl2-offload").token

    assert sentence(token, "attn_norm-0") == (
        "On the CPU because it follows its weight blk.0.attn_norm.weight, which is in CPU memory; "
        "RPC0 does not want it for a batch of 1."
    )


def test_with_op_offload_off_it_says_so():
    table = recorded("ngl2-no-op-offload").prompt

    assert sentence(table, "attn_norm-0").endswith("which is in CPU memory; op_offload is off.")


def test_a_table_look_up_is_never_wanted(offloaded):
    assert sentence(offloaded, "embd").endswith("RPC0 does not want it for a table look-up.")


def test_a_missing_kernel_is_named():
    table = drawn(
        matmul("a", weight("w", CPU_BUFT), given("x")), on=(gpu(not_ops=("MUL_MAT",)), cpu())
    )

    assert sentence(table, "a").endswith("; no device before it can run MUL_MAT.")


def test_memory_that_is_no_devices_default_is_told_by_who_reads_it():
    table = drawn(matmul("a", weight("w", REPACK_BUFT), given("x")), on=(cpu(),))

    assert sentence(table, "a").endswith("it follows its weight w, which is in CPU memory.")


def test_a_weight_on_a_device_needs_no_more_words():
    table = recorded("ngl-all-1dev").prompt

    assert sentence(table, "attn_norm-0") == (
        "On RPC0 because it follows its weight blk.0.attn_norm.weight, which is in RPC0 memory."
    )


def test_a_swept_node_names_the_neighbour(offloaded):
    slot = slot_of(offloaded, "norm-0")
    card = explain(offloaded, slot)

    assert plain(card.sentence) == (
        "On RPC0 because nothing held it anywhere, and sweep 2b came up from attn_norm-0, which "
        "runs on RPC0."
    )
    assert card.neighbour == f"#{offloaded.cause(slot).neighbour - offloaded.n_leafs} attn_norm-0"
    assert card.shows_reached


def test_a_graph_input_is_written_by_the_host(offloaded):
    assert sentence(offloaded, "inp_tokens") == (
        "On the CPU because it is an input of the graph, which the host writes before each batch."
    )


def test_the_cache_is_told_from_other_homes(offloaded):
    assert sentence(offloaded, "cache_k_l0 (view)") == (
        "On the CPU because it writes into cache_k_l0, and layer 0's KV cache lives in CPU memory."
    )
    assert "its weight is there: its bytes are in" in sentence(offloaded, "token_embd.weight")
    assert "its buffer is there: its bytes are in" in sentence(offloaded, "cache_k_l0")


def test_a_pinned_norm_says_why_llama_pins_it():
    card = explain(
        recorded("ngl2-offload").token, slot_of(recorded("ngl2-offload").token, "norm-0")
    )

    assert "pins norms to their layer's device" in plain(card.sentence)
    assert (card.step, card.tag, card.neighbour) == ("0", "usr", "none")


def test_another_pin_was_made_by_hand():
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))

    table = drawn(a, on=(gpu(), cpu()), pins={a: 1})

    assert sentence(table, "a") == ("On the CPU because it was assigned by hand before the passes.")


def test_pass_3_and_pass_4_have_words():
    pinned = norm("p", given("x"))
    a = matmul("a", weight("w", GPU0_BUFT), given("y"))
    best = named("best", build.add(a, constant("k")))
    view = build.reshape(a, N * N)
    views = (gpu(not_ops=("ADD",)), blas(ops=("MUL_MAT", "RMS_NORM")), cpu())
    table = drawn(pinned, best, view, on=views, pins={pinned: 2})

    assert "most of its inputs can be read from here" in sentence(table, "best")
    assert "it shares the same memory" in sentence(table, "p")
    assert sentence(table, "k").endswith("nothing placed it before, and best reads it here.")
    assert sentence(table, "a (reshaped)") == (
        "On GPU0 because it computes nothing: a view goes where its source a is."
    )


def test_the_last_resort_names_the_operation():
    table = drawn(build.view(constant("k"), (N,)), on=(gpu(), cpu()))

    assert "no sweep reached it and this is the first device with VIEW" in sentence(
        table, "k (view)"
    )


def test_a_leaf_that_nothing_reads_is_nowhere():
    table = drawn(constant("k"), on=(gpu(), cpu()))

    card = explain(table, 0)

    assert (card.device, plain(card.sentence)) == ("nowhere", "Nowhere because nothing reads it.")
    assert not any(candidate.chosen for candidate in card.candidates)


def test_facts_leave_out_dimensions_of_one(offloaded):
    assert explain(offloaded, slot_of(offloaded, "embd")).facts == "GET_ROWS · f32 [576, 512]"


def test_leafs_have_no_node_number(offloaded):
    assert explain(offloaded, 0).node_id == -1
    assert explain(offloaded, offloaded.n_leafs).node_id == 0


# As text.


def test_the_text_says_it_all_in_fixed_places(offloaded):
    text = why_text(explain(offloaded, slot_of(offloaded, "attn_norm-0")))

    assert text.splitlines() == [
        "attn_norm-0  #2",
        "MUL · f32 [576, 512]",
        sentence(offloaded, "attn_norm-0"),
        "",
        "Decided in  pass 1, op_offload  [1.off]",
        "Neighbour   its weight, source 1",
        "",
        "Device  supports_op  supports_buft  offload_op  prio",
        "RPC0    ✓            ✕              ✓           0",
        "CPU     ✓            ✓              \u2013           1",
        "",
        "[ ] first test that failed; \u2013 not asked",
    ]


def test_the_test_that_failed_is_in_brackets():
    token = recorded("ngl2-offload").token
    text = why_text(explain(token, slot_of(token, "attn_norm-0")))

    assert "RPC0    ✓            ✕              [✕]         0" in text.splitlines()


def test_reached_is_a_column_of_the_sweeps_only(offloaded):
    swept = explain(offloaded, slot_of(offloaded, "norm-0"))
    other = explain(offloaded, slot_of(offloaded, "attn_norm-0"))

    assert shown_tests(swept)[0] is Test.REACHED
    assert Test.REACHED not in shown_tests(other)


def test_the_text_of_a_leaf_has_no_number(offloaded):
    assert why_text(explain(offloaded, 0)).splitlines()[0] == offloaded.name[0]
