"""A BLAS backend on one thread, two, and more than there are cores; splits made by hand."""

import pytest

from engine.backends.blas.backend import BlasBackend
from engine.backends.blas.reg import create
from tests.engine.backends.cpu.cpu_split import CpuSplit


@pytest.fixture(params=[1, 2, 5], ids=lambda n: f"{n} threads")
def backend(request):
    made = BlasBackend(create().devices()[0], request.param)
    yield made
    made.dispose()


@pytest.fixture
def split():
    """Give a split in the CPU's memory, where BLAS works."""
    return CpuSplit()
