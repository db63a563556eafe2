"""Memory of a joined device: whole tensors outside, parts inside."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.interface import BufferType, Device
from engine.backends.cpu.reg import create
from engine.backends.meta.buffer import MetaBufferType
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.shards import MIRRORED, one_of, shard_along
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import DeviceError

META = BufferTypeFacts("Meta()", alignment=128)


def tensor(*ne, tensor_type=TensorType.F32, name=""):
    return Tensor(tensor_type, (*ne, *[1] * (4 - len(ne))), name=name)


class Memory(BufferType):
    """A CPU's memory that has so many bytes left, and counts what it gave."""

    def __init__(self, real, n_bytes, max_bytes, pad_row_elems):
        self._real = real
        self.facts = BufferTypeFacts(
            "room", alignment=32, max_bytes=max_bytes, pad_row_elems=pad_row_elems
        )
        self.free = n_bytes
        self.sizes = []

    def alloc_buffer(self, size, usage=BufferUsage.ANY):
        """Memory, or the error of one that is full."""
        if size > self.free:
            raise DeviceError("The room is full.")
        self.free -= size
        self.sizes.append(size)
        buffer = self._real.alloc_buffer(size, usage)
        release = buffer.release

        def give_back():
            self.free += size
            release()

        buffer.release = give_back
        return buffer


class Room(Device):
    """A CPU with such memory."""

    def __init__(self, n_bytes=2**30, max_bytes=None, pad_row_elems=0):
        self._real = create().devices()[0]
        self.memory = Memory(self._real.buffer_type(), n_bytes, max_bytes, pad_row_elems)

    @property
    def facts(self):
        """Those of the CPU under another name."""
        return replace(self._real.facts, name="ROOM")

    def init_backend(self):
        """The CPU's."""
        return self._real.init_backend()

    def buffer_type(self):
        """The memory that is counted."""
        return self.memory


def filled(*tensors, shards, members):
    """Places of tensors that hold random bytes, and these."""
    places = MetaBufferType(META, members, shards).alloc_tensors(tensors)
    random = np.random.default_rng(0)
    data = [random.integers(0, 256, x.n_bytes, np.uint8) for x in tensors]
    for place, raw in zip(places, data, strict=True):
        place.buffer.set_tensor(place.offset, raw).synchronize()
    return places, data


def read(place, n_bytes, start=0):
    out = np.zeros(n_bytes, np.uint8)
    place.buffer.get_tensor(place.offset + start, out).synchronize()
    return out


SHARDS = {
    "rows": shard_along(1, (2, 4)),
    "columns": shard_along(0, (32, 64)),
    "of experts": shard_along(2, (1, 3)),
    "whole": MIRRORED,
    "one member's": one_of(1, 2),
}


@pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.Q4_0])
def test_what_was_written_is_read_however_it_is_shared(shard, tensor_type):
    x, y = tensor(96, 6, 4, tensor_type=tensor_type), tensor(8)

    places, data = filled(x, y, shards={x: shard}, members=[Room(), Room()])

    for place, raw in zip(places, data, strict=True):
        assert np.array_equal(read(place, raw.size), raw)


@given(st.data(), st.sampled_from(list(SHARDS.values())))
def test_any_stretch_can_be_written_and_read(data, shard):
    x = tensor(96, 6, 4)
    (place,), (raw,) = filled(x, shards={x: shard}, members=[Room(), Room()])
    start = data.draw(st.integers(0, raw.size - 1))
    stop = data.draw(st.integers(start + 1, raw.size))

    place.buffer.set_tensor(place.offset + start, 255 - raw[start:stop])

    raw[start:stop] = 255 - raw[start:stop]
    assert np.array_equal(read(place, raw.size), raw)
    assert np.array_equal(read(place, stop - start, start), raw[start:stop])


def test_members_have_the_rows_or_columns_that_are_theirs():
    x = tensor(4, 6)
    values = np.arange(24, dtype=np.float32).reshape(6, 4)

    rows, columns = shard_along(1, (2, 4)), shard_along(0, (1, 3))
    for shard, part in ((rows, values[2:]), (columns, values[:, 1:])):
        (place,), _ = filled(x, shards={x: shard}, members=[Room(), Room()])
        place.buffer.set_tensor(place.offset, values.reshape(-1).view(np.uint8))

        own = place.buffer.place_on(1, place.offset)
        assert np.array_equal(read(own, part.size * 4).view(np.float32), part.reshape(-1))


def test_members_have_room_for_their_parts_only():
    members = [Room(), Room(), Room()]
    shared, norm = tensor(64, 100), tensor(64)

    filled(shared, norm, shards={shared: shard_along(1, (50, 50, 0))}, members=members)

    assert [sum(room.memory.sizes) for room in members] == [50 * 256 + 256, 50 * 256 + 256, 256]


def test_parts_have_room_for_what_their_members_memory_pads():
    """CUDA reads rows of quantised weights up to 512 elements: behind the last one too."""
    members = [Room(pad_row_elems=512), Room()]
    x = tensor(96, 6, tensor_type=TensorType.Q4_0)

    filled(x, shards={x: shard_along(0, (32, 64))}, members=members)

    # A row of 32 elements has 18 bytes, and 480 more behind the last have 270.
    assert [room.memory.sizes for room in members] == [[384], [224]]


def test_a_member_whose_buffers_are_small_has_several():
    members = [Room(max_bytes=1000), Room()]
    tensors = [tensor(64, 4) for _ in range(3)]
    shards = {x: shard_along(1, (3, 1)) for x in tensors}

    places, data = filled(*tensors, shards=shards, members=members)

    assert [room.memory.sizes for room in members] == [[768, 768, 768], [768]]
    for place, raw in zip(places, data, strict=True):
        assert np.array_equal(read(place, raw.size), raw)


def test_when_one_member_has_no_room_the_others_give_theirs_back():
    members = [Room(), Room(100)]
    x = tensor(64, 100)
    buft = MetaBufferType(META, members, {x: shard_along(1, (50, 50))})

    for ask in (lambda: buft.alloc_tensors([x]), lambda: buft.alloc_buffer(4096)):
        with pytest.raises(DeviceError, match=r"ROOM has no memory for .*The room is full\."):
            ask()
        assert [room.memory.free for room in members] == [2**30, 100]


def test_a_buffer_for_results_is_the_same_on_every_member():
    members = [Room(), Room()]
    buffer = MetaBufferType(META, members, {}).alloc_buffer(4096)
    raw = np.arange(100, dtype=np.uint8)

    buffer.clear(7)
    told = []
    buffer.set_tensor(50, raw).on_complete(told.append)

    assert [[shard.device for shard in done.shards] for done in told] == [["ROOM", "ROOM"]]
    for member in range(2):
        own = buffer.place_on(member, 0)
        assert np.array_equal(read(own, 50), np.full(50, 7, np.uint8))
        assert np.array_equal(read(own, 100, 50), raw)
    buffer.release()
    assert [room.memory.free for room in members] == [2**30] * 2


def test_cleared_parts_are_clear_and_released_ones_given_back():
    members = [Room(), Room()]
    x = tensor(64, 6)
    (place,), _ = filled(x, shards={x: shard_along(1, (2, 4))}, members=members)

    place.buffer.clear(0)

    assert not read(place, x.n_bytes).any()
    place.buffer.release()
    assert [room.memory.free for room in members] == [2**30] * 2
