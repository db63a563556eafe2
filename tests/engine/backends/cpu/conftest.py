"""Fixtures of the CPU backend's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.backends.cpu import writer
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create
from tests.engine.backends.cpu.cpu_split import CpuSplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.fixtures import SubRequest


@pytest.fixture(params=[1, 2, 3], ids=["1 thread", "2 threads", "3 threads"])
def backend(request: SubRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuBackend]:
    """A backend that shares even small rows among its threads."""
    monkeypatch.setattr(writer, "PARALLEL_FROM", 8)
    monkeypatch.setattr(writer, "PARALLEL_FROM_PRODUCTS", 1)
    made = CpuBackend(create().devices()[0], request.param)
    yield made
    made.dispose()


@pytest.fixture
def split() -> CpuSplit:
    return CpuSplit()
