"""Weights into CPU_REPACK: converted one by one, while the rest of the file stays mapped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from engine.backends.cpu.reg import create
from engine.core.options import Options
from engine.core.quants import quantize
from engine.core.repack import CPU_REPACK, has_layout
from engine.core.types import TensorType
from engine.errors import Stopped
from engine.gguf import reader
from engine.gguf.reader import open_gguf
from engine.gguf.writer import write_gguf
from engine.model.loader import Resident, load_weights
from engine.model.planning import make_planner
from tests.engine.model.made import METADATA, shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine.core.summary import Progress
    from engine.core.tensor import Tensor


def write_q4_0(path: Path) -> None:
    """A llama file whose matrices are q4_0."""
    rng = np.random.default_rng(0)
    tensors: list[tuple[str, TensorType, tuple[int, ...], np.ndarray[Any, Any]]] = []
    for name, ne in shapes().items():
        values = rng.standard_normal(ne[::-1]).astype(np.float32)
        if len(ne) == 1:
            tensors.append((name, TensorType.F32, ne, values))
        else:
            tensors.append((name, TensorType.Q4_0, ne, quantize(TensorType.Q4_0, values)))
    write_gguf(path, METADATA, tensors)


class Loading:
    """The file on this computer's processor."""

    def __init__(self, path: Path, options: Options | None = None) -> None:
        self.file = open_gguf(path)
        device = create().devices()[0]
        self.devices = {device.facts.name: device}
        self.planner = make_planner(self.file, [device.facts], options or Options())
        self.resident = Resident()
        self.progress: list[Progress] = []

    def load(self, stop_asked: Callable[[], bool] = lambda: False) -> None:
        load_weights(
            self.resident, self.file, self.planner.weights, self.devices,
            on_progress=self._keep, stop_asked=stop_asked,
        )  # fmt: skip

    def _keep(self, progress):
        """What is told of weights; that the file is read is told on some systems only."""
        if not progress.label.startswith("reading "):
            self.progress.append(progress)

    def repacked(self) -> list[Tensor]:
        """The weights that were loaded into CPU_REPACK."""
        places = self.resident.places
        return [tensor for tensor, place in places.items() if place.buffer.buft == CPU_REPACK]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_q4_0(tmp_path / "q4_0.gguf")
    return tmp_path / "q4_0.gguf"


@pytest.fixture
def loading(path: Path) -> Iterator[Loading]:
    made = Loading(path)
    yield made
    made.resident.release()
    made.file.close()


def matrices(loading: Loading) -> list[str]:
    """The names of weights that this processor has a layout for; the first one's rows are read."""
    features = next(iter(loading.devices.values())).facts.features
    weights = {tensor.name: tensor for tensor in loading.planner.weights.tensors.values()}
    names = [name for name, tensor in weights.items() if has_layout(tensor, features)]
    return sorted(set(names) - {"token_embd.weight"})


def test_matrices_are_converted_and_the_rest_stays_mapped(loading):
    loading.load()

    places = loading.resident.places
    assert sorted(tensor.name for tensor in loading.repacked()) == matrices(loading)
    rest = {place.buffer.buft.name for t, place in places.items() if t not in loading.repacked()}
    assert rest == {"CPU_Mapped"}
    assert set(places) == set(loading.planner.weights.tensors.values())


def test_converted_weights_have_the_bytes_of_the_file(loading):
    loading.load()

    for tensor in loading.repacked():
        place = loading.resident.places[tensor]
        out = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, out)
        expected = loading.file.tensor_bytes(loading.file.tensor(tensor.name))
        np.testing.assert_array_equal(out, expected)


def test_progress_names_and_counts_the_weights_that_are_converted(loading):
    loading.load()

    n = len(matrices(loading))
    assert [p.label.split(" into ")[1] for p in loading.progress] == [
        f"CPU_REPACK, {i + 1} of {n}" for i in range(n)
    ]
    assert {p.label.split()[1] for p in loading.progress} == set(matrices(loading))
    assert loading.progress[-1].done == loading.progress[-1].total


def test_converting_stops_between_weights_when_asked_to(loading):
    with pytest.raises(Stopped):
        loading.load(lambda: len(loading.progress) == 2)

    assert len(loading.progress) == 2


class Spans:
    """Keeps what is told to have been copied."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        self.told.append((start, stop))


def test_converted_weights_need_not_stay_mapped_and_others_must(loading, monkeypatch):
    spans = Spans()
    monkeypatch.setattr(reader, "CopiedParts", lambda mapping: spans)

    loading.load()

    names = [tensor.name for tensor in loading.repacked()]
    file = loading.file
    assert spans.told == [file.span_of(file.tensor(name)) for name in names]
    for name, (start, stop) in zip(names, spans.told, strict=True):
        assert start == file.data_offset + file.tensor(name).offset
        assert 0 <= stop - start - file.tensor(name).n_bytes < file.alignment


def test_a_weight_that_is_mapped_too_stays(loading, monkeypatch):
    spans = Spans()
    monkeypatch.setattr(reader, "CopiedParts", lambda mapping: spans)
    converted, mapped = sorted(loading.planner.weights.buffers, key=lambda b: b.is_mapped)
    twice = converted.weights[0]
    buffers = (converted, replace(mapped, weights=(*mapped.weights, twice)))
    weights = replace(loading.planner.weights, buffers=buffers)

    load_weights(
        loading.resident, loading.file, weights, loading.devices,
        on_progress=lambda progress: None, stop_asked=lambda: False,
    )  # fmt: skip

    assert loading.file.span_of(twice.info) not in spans.told
    assert len(spans.told) == len(converted.weights) - 1


def test_without_repacking_the_whole_file_is_mapped(path):
    loading = Loading(path, Options(repack=False))
    with loading.file:
        loading.load()

        assert {b.buft.name for b in loading.resident.buffers} == {"CPU_Mapped"}
        assert loading.progress == []
        loading.resident.release()
