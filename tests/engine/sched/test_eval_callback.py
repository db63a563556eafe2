"""An eval callback sees the nodes it wants, with everything up to them computed."""

import pytest

from engine.core import build
from engine.trace.records import SpanKind
from tests.engine.sched.bench import Bench, on_cpu, on_gpu
from tests.engine.sched.drawn import cpu, given, gpu, named


def chain():
    """x ──► a ──► seen (view) ──► b [CPU] ──► c [GPU0]"""
    a = on_cpu("a", given("x"))
    return on_gpu("c", on_cpu("b", named("seen", build.reshape(a, *a.ne))))


class Watcher:
    """Wants some nodes, refuses to go on after one of them, writes down what it is asked."""

    def __init__(self, bench, wanted, refused=()):
        self.names, self.calls = [], bench.calls
        self.wanted, self.refused = wanted, refused
        self.asked, self.shown = [], []

    def __call__(self, node_id, ask):
        name = self.names[node_id]
        if ask:
            self.asked.append(name)
            return name in self.wanted
        self.shown.append((name, self.calls[-1]))
        return name not in self.refused


def watched(*wanted, refused=()):
    bench = Bench(gpu(), cpu())
    allocated = bench.alloc(chain())
    watcher = Watcher(bench, wanted, refused)
    watcher.names = [node.name for node in allocated.plan.run.nodes]
    bench.scheduler.eval_callback = watcher
    bench.calls.clear()
    bench.scheduler.compute(allocated, step=0)
    computed = [c.split(":")[1] for c in bench.calls if c.startswith("graph_compute")]
    return watcher, computed, bench


def test_every_node_is_offered_views_too():
    watcher, _, _ = watched()

    assert watcher.asked == ["a", "seen", "b", "c"]


def test_a_split_is_computed_in_pieces_that_end_at_wanted_nodes():
    watcher, computed, _ = watched("a")

    assert computed == ["a", "seen,b", "c"]
    assert [name for name, _ in watcher.shown] == ["a"]


def test_the_device_is_done_when_a_node_is_shown():
    watcher, _, _ = watched("c")

    assert watcher.shown == [("c", "synchronize GPU0")]


def test_a_refusal_leaves_out_the_rest_of_the_split_only():
    """T16: the next split still runs."""
    watcher, computed, _ = watched("a", "b", refused=("a",))

    assert computed == ["a", "c"]
    assert watcher.asked == ["a", "c"]


@pytest.mark.parametrize("wanted", [(), ("a", "seen", "b")])
def test_spans_of_the_pieces_are_spans_of_their_split(wanted):
    _, computed, bench = watched(*wanted)

    spans = bench.spans(SpanKind.SPLIT)
    assert len(spans) == len(computed)
    assert set(spans["index"].tolist()) == {0, 1}


def test_without_a_callback_splits_are_whole_again():
    _, _, bench = watched("a")
    bench.scheduler.eval_callback = None

    assert bench.run(chain())[0].endswith("a,seen,b")
