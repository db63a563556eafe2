"""What the oracle tests share."""

import pytest

from engine.session import Session
from tests.engine.backends.ggml.libraries import cpu_library


@pytest.fixture(scope="session")
def opencl_device() -> str:
    """Name of this machine's first OpenCL device; the test is skipped where there is none."""
    session = Session()
    names = [device.name for device in session.devices() if device.name.startswith("OpenCL")]
    if not names:
        reasons = "; ".join(item.reason for item in session.unavailable())
        pytest.skip(f"OpenCL: no device ({reasons})")
    return names[0]


@pytest.fixture
def ggml_cpu(monkeypatch) -> str:
    """Name of a real ggml library's CPU, which sessions load; skipped without a library."""
    monkeypatch.setenv("GGML_BACKEND_PATH", str(cpu_library()))
    return "ggml-CPU"
