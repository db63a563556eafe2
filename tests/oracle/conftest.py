"""What the oracle tests share."""

import pytest

from engine.session import Session


@pytest.fixture(scope="session")
def opencl_device() -> str:
    """Name of this machine's first OpenCL device; the test is skipped where there is none."""
    session = Session()
    names = [device.name for device in session.devices() if device.name.startswith("OpenCL")]
    if not names:
        reasons = "; ".join(item.reason for item in session.unavailable())
        pytest.skip(f"OpenCL: no device ({reasons})")
    return names[0]
