import numpy as np

from app.views.inspector.node_facts import (
    facts_line,
    memory_words,
    neighbour_html,
    readers_html,
    reads_html,
    time_words,
)
from app.views.inspector.rich import rich_sentence
from engine.core.explain import explain
from engine.trace.records import SPAN_DTYPE, SpanKind
from tests.app.models import paper_run

INK = "#000000"


def prompt():
    return paper_run.plans().prompt


def test_the_facts_have_operation_shape_bytes_and_split():
    table = prompt()
    slot = table.slot(12)

    line = facts_line(table, explain(table, slot), slot)

    assert paper_run.words(line) == "SET_ROWS · f16 [192, 512] · 192 KiB · split 6"


def test_sources_that_are_nodes_are_links_and_weights_say_their_memory():
    table = prompt()

    html = reads_html(table, table.slot(3), INK)

    assert "blk.0.attn_q.weight (in CPU_Mapped)" in html
    assert '<a href="node:2"' in html


def test_readers_are_links():
    table = prompt()

    assert 'href="node:' in readers_html(table, table.slot(2), INK)


def test_the_neighbour_of_a_sweep_is_a_link_to_it():
    table = prompt()
    slot = table.slot(24)

    html = neighbour_html(table, slot, explain(table, slot), INK)

    assert html == f'<a href="node:23" style="color: {INK}">#23 attn_out-0</a>'


def test_memory_is_the_cache_for_what_is_written_into_it():
    table = prompt()

    assert memory_words(table, table.slot(12)) == "written into cache_k_l0, in CPU"
    assert memory_words(table, table.slot(24)) == "compute buffer of OpenCL0"


def test_before_a_run_the_time_is_not_run_yet():
    assert time_words(None, prompt(), 12) == "not run yet"


def test_a_device_that_times_splits_only_says_so():
    spans = paper_run.run_on_paper(paper_run.plans()).spans()

    assert time_words(spans, prompt(), 3).startswith("not measured by itself")


def test_a_node_that_was_timed_has_its_time():
    spans = np.zeros(1, SPAN_DTYPE)
    spans["kind"], spans["plan_id"], spans["index"] = SpanKind.NODE, prompt().plan_id, 12
    spans["end_ns"] = 22_000

    assert paper_run.words(time_words(spans, prompt(), 12)) == "22 µs, measured once"


def test_a_sentence_becomes_rich_text_and_names_are_escaped():
    assert rich_sentence("it **writes** a<b") == "it <b>writes</b> a&lt;b"
