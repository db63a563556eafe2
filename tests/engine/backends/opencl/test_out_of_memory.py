"""A second OpenCL device that refuses a buffer: the first one's memory is given back."""

from dataclasses import replace

import pytest

from engine.backends.opencl.device import make_devices
from engine.core.options import Options
from engine.errors import DeviceError
from engine.model.loader import Resident, load_cache, load_weights
from engine.model.planning import make_planner
from tests.engine.model.made import made_file
from tests.engine.paper import parse_virtual

pytestmark = pytest.mark.gpu


@pytest.fixture
def pair(opencl, found):
    devices, refused = make_devices(opencl, (found,), 32, n_parts=2)
    assert not refused
    return devices


def test_a_buffer_that_a_device_does_not_allow_leaves_nothing_on_the_other(
    pair, tmp_path, monkeypatch
):
    """What is planned for the second is a byte more than its driver is said to allow."""
    first, second = pair
    facts = [*(device.facts for device in pair), parse_virtual("CPU:cpu:16384")]
    options = Options(n_ctx=512, devices=tuple(d.name for d in pair), tensor_split=(1, 4))
    file = made_file(tmp_path)
    planner = make_planner(file, facts, options)
    cache_of = {group.device.name: group for group in planner.cache.buffers}
    wanted = cache_of[second.name].n_bytes
    held = []
    resident = Resident()
    devices = {device.name: device for device in pair}
    gpus = [b for b in planner.weights.buffers if b.device.name in devices]
    load_weights(
        resident, file, replace(planner.weights, buffers=tuple(gpus)), devices,
        on_progress=lambda progress: None, stop_asked=lambda: False,
    )  # fmt: skip
    kind = second.buffer_type()
    monkeypatch.setattr(kind, "facts", replace(kind.facts, max_bytes=wanted - 1))

    with pytest.raises(DeviceError) as caught, file:
        load_cache(resident, planner.cache, devices)
    held.append([device._held_bytes for device in pair])
    resident.release()
    held.append([device._held_bytes for device in pair])

    assert held[0][0] >= cache_of[first.name].n_bytes
    assert held[1] == [0, 0]
    error = caught.value
    assert error.title == f"{second.name} has no memory for its cache."
    assert (
        f" bytes free, and {wanted:,} bytes were asked for; the largest is cache_" in error.sentence
    )
    assert error.sentence.endswith(
        f"{second.name} allows buffers of up to {wanted - 1:,} bytes, not {wanted:,}."
    )
