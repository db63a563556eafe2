"""The command stream: times, stopping, threads."""

import ctypes
import threading
import time

import numpy as np
import pytest

from engine.backends.blas import program
from engine.backends.blas.library import BlasThreads
from engine.backends.blas.program import Product
from engine.backends.blas.reg import create
from engine.core import build
from engine.core.types import TensorType as T
from engine.errors import Stopped
from tests.engine.backends.cpu.cpu_split import random


def product(split, kind=T.F32, inner=64):
    return build.mul_mat(
        split.leaf(random((40, inner), 1), kind), split.leaf(random((1, 1, 33, inner), 2))
    )


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("blas")]


def test_the_event_has_the_time_of_each_product_and_of_no_view(backend, split):
    first, second = product(split), product(split, T.F16)
    view = build.reshape(first, 33 * 40)
    completions = []

    before_ns = time.monotonic_ns()
    backend.graph_compute(split.graph(first, view, second)).on_complete(completions.append)
    after_ns = time.monotonic_ns()

    (done,) = completions
    assert done.nodes.nodes.tolist() == [0, 2]
    starts, ends, error_ns = done.nodes.read()
    times = np.stack([starts, ends], axis=1).reshape(-1)
    ordered = [before_ns, done.start_ns, *times.tolist(), done.end_ns, after_ns]
    assert ordered == sorted(ordered)
    assert error_ns == 0


def test_a_split_of_views_takes_no_products(backend, split):
    done = []

    view = build.reshape(split.leaf(random((64, 64))), 4096)
    backend.graph_compute(split.graph(view)).on_complete(done.append)

    assert done[0].nodes is None


def test_what_has_no_elements_is_left_out(backend, split):
    empty = build.mul_mat(
        split.leaf(random((40, 64), 1)), split.leaf(np.empty((1, 0, 33, 64), np.float32))
    )
    completions = []

    backend.graph_compute(split.graph(empty)).on_complete(completions.append)

    assert completions[0].nodes is None


def test_a_split_is_prepared_once(backend, split):
    graph = split.graph(product(split))

    backend.graph_compute(graph)
    kept = graph.program
    backend.graph_compute(graph)

    assert graph.program is kept


def test_it_stops_before_the_first_product_when_that_was_asked(backend, split):
    word = ctypes.c_int64(1)
    backend.set_stop_word(ctypes.addressof(word))
    node = product(split)

    with pytest.raises(Stopped):
        backend.graph_compute(split.graph(node))
    assert np.isnan(split.read(node)).all()

    word.value = 0
    assert not np.isnan(split.compute(backend, node)).any()


def test_it_stops_inside_a_large_product(backend, split, monkeypatch):
    monkeypatch.setattr(program, "BLOCK_ELEMS", 64 * 10)
    word, seen = ctypes.c_int64(0), []
    backend.set_stop_word(ctypes.addressof(word))
    compute = Product.compute

    def ask_at_the_second_block(self, workers, check_stop):
        def check():
            seen.append(1)
            word.value = int(len(seen) >= 2)
            check_stop()

        compute(self, workers, check)

    monkeypatch.setattr(Product, "compute", ask_at_the_second_block)
    node = product(split, T.F16)

    with pytest.raises(Stopped):
        backend.graph_compute(split.graph(node))

    n_computed = 40 - np.isnan(split.read(node)[0, 0]).any(axis=0).sum()
    assert n_computed <= 10


def test_blas_has_no_threads_of_its_own_during_a_split(backend, split, monkeypatch):
    library, seen = BlasThreads(), []
    before = library.current()
    monkeypatch.setattr(Product, "compute", lambda *_: seen.append(library.current()))

    with library.limited(3):
        backend.graph_compute(split.graph(product(split)))
        after = library.current()

    assert seen == [(1,) * len(before)]
    assert after == (3,) * len(before)


def test_the_number_of_threads_is_set_by_name(backend, split):
    set_n_threads = create().get_proc_address("ggml_backend_set_n_threads")

    set_n_threads(backend, 4)

    assert backend.n_threads == 4
    assert not np.isnan(split.compute(backend, product(split, T.F16))).any()


def test_threads_end_with_the_backend_and_with_another_number(backend, split):
    split.compute(backend, product(split, T.F16))
    assert len(helpers()) <= backend.n_threads - 1

    backend.set_n_threads(backend.n_threads + 1)
    assert helpers() == []

    split.compute(backend, product(split, T.Q8_0))
    assert 1 <= len(helpers()) <= backend.n_threads - 1
    backend.dispose()
    assert helpers() == []
