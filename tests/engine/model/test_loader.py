"""Weights into buffers: progress, stopping, and files that end early."""

import pytest

from engine.backends.null.reg import NullReg
from engine.core.devices import CPU_BUFT
from engine.core.options import Options
from engine.errors import DeviceError, ModelError, Stopped
from engine.gguf.reader import open_gguf
from engine.model.loader import (
    Resident,
    buffer_type_of,
    check_loadable,
    load_cache,
    load_weights,
)
from engine.model.planning import make_planner
from tests.engine.model.made import made_file
from tests.engine.paper import parse_virtual
from tests.oracle import golden

GPU = "GPU0:gpu:8192:mmap=0"
CPU = "CPU:cpu:16384"


class Loading:
    """A made file on null devices."""

    def __init__(self, tmp_path, *lines):
        facts = [parse_virtual(line) for line in lines]
        self.file = made_file(tmp_path)
        self.devices = {d.facts.name: d for d in NullReg(facts).devices()}
        self.planner = make_planner(self.file, facts, Options())
        self.resident = Resident()
        self.progress = []

    def load(self, stop_asked=lambda: False):
        load_weights(
            self.resident, self.file, self.planner.weights, self.devices,
            on_progress=self.progress.append, stop_asked=stop_asked,
        )  # fmt: skip


@pytest.fixture
def loading(tmp_path):
    made = Loading(tmp_path, GPU, CPU)
    yield made
    made.file.close()


def test_every_weight_gets_a_place_of_its_own(loading):
    loading.load()

    places = loading.resident.places
    assert set(places) == set(loading.planner.weights.tensors.values())
    assert len({(id(p.buffer), p.offset) for p in places.values()}) == len(places)


def test_progress_counts_the_bytes_that_are_copied(loading):
    loading.load()

    done = [p.done for p in loading.progress]
    assert done == sorted(done)
    last = loading.progress[-1]
    assert last.done == last.total == sum(b.n_bytes for b in loading.planner.weights.buffers)
    assert last.label.startswith("loading ")


def test_loading_stops_between_weights_when_asked_to(loading):
    answers = iter([False, False, True])

    with pytest.raises(Stopped):
        loading.load(lambda: next(answers))

    assert len(loading.progress) == 2


def test_a_device_that_cannot_use_a_mapped_file_says_so(tmp_path):
    loading = Loading(tmp_path, CPU)
    with loading.file, pytest.raises(DeviceError, match="CPU cannot use a mapped file"):
        loading.load()


def test_the_cache_gets_places_on_its_devices(loading):
    load_cache(loading.resident, loading.planner.cache, loading.devices)

    cache = loading.planner.cache
    assert set(loading.resident.places) == {*cache.keys.values(), *cache.values.values()}
    (buffer,) = loading.resident.buffers
    assert (buffer.buft.name, buffer.size) == ("GPU0", cache.buffers[0].n_bytes)


def test_released_weights_have_no_places(loading):
    loading.load()

    loading.resident.release()

    assert (loading.resident.places, loading.resident.buffers) == ({}, [])


def test_a_file_that_ends_early_can_be_planned_and_not_run():
    with (
        open_gguf(golden.header("smollm2-135m-q4_1")) as file,
        pytest.raises(ModelError) as caught,
    ):
        check_loadable(file)

    assert caught.value.title.endswith("ends too early. It can be planned, not run.")
    assert "Tensor 1 of 272" in caught.value.sentence
    assert "Expected size" in caught.value.hint


def test_memory_a_device_does_not_have_is_refused(loading):
    with pytest.raises(DeviceError, match="GPU0 has no memory called CPU"):
        buffer_type_of(loading.devices["GPU0"], CPU_BUFT)
