"""Weights on their way to devices on paper: at once, or through pinned memory in turns."""

import numpy as np
import pytest

from engine.backend.interface import Place
from engine.backends.null.reg import NullReg
from engine.model.upload import CHUNK_BYTES, N_CHUNKS, sending
from tests.engine.paper import parse_virtual

PINNING = "GPU0:gpu:8192:preset=cuda"


def calls_of(line, n_bytes, buft=""):
    """What a device is asked for when so many bytes are sent to it."""
    calls = []
    (device,) = NullReg([parse_virtual(line)], calls.append).devices()
    target = device.buffer_type().alloc_buffer(n_bytes)
    calls.clear()
    with sending(device, buft or device.facts.buft.name) as send:
        send(Place(target, 0), np.zeros(n_bytes, np.uint8))
    return calls


def test_a_device_with_pinned_memory_is_sent_pieces_from_two_chunks_in_turns():
    calls = calls_of(PINNING, 2 * CHUNK_BYTES + 5)

    made = [call for call in calls if call.startswith(("alloc_buffer", "event_new"))]
    assert made[-4:] == [f"alloc_buffer CUDA_Host {CHUNK_BYTES}"] * 2 + [
        "event_new GPU0 ev0",
        "event_new GPU0 ev1",
    ]
    steps = [call for call in calls if "event_" in call or "async" in call][-9:]
    assert steps == [
        "event_synchronize GPU0 ev0",
        f"set_tensor_async GPU0 n={CHUNK_BYTES}",
        "event_record GPU0 ev0",
        "event_synchronize GPU0 ev1",
        f"set_tensor_async GPU0 n={CHUNK_BYTES}",
        "event_record GPU0 ev1",
        "event_synchronize GPU0 ev0",
        "set_tensor_async GPU0 n=5",
        "event_record GPU0 ev0",
    ]
    assert calls[-1] == "synchronize GPU0"
    assert sum(call.startswith("event_new") for call in calls) == N_CHUNKS


@pytest.mark.parametrize(
    ("line", "buft"),
    [
        ("GPU0:gpu:8192", "GPU0"),
        ("GPU0:gpu:8192:preset=rpc", "GPU0"),
        (PINNING, "CUDA_Host"),
        ("CPU:cpu:8192", "CPU"),
    ],
)
def test_other_memory_is_written_at_once(line, buft):
    calls = calls_of(line, 100, buft)

    assert [call for call in calls if "tensor" in call] == [calls[-1]]
    assert calls[-1].startswith("set_tensor ")
