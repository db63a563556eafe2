"""Weights and caches into real buffers: mapped where the device allows it, else copied."""

from __future__ import annotations

import mmap
from collections import Counter
from typing import TYPE_CHECKING

from engine.backend.alloc import padded_bytes
from engine.backend.computer import memory_bytes
from engine.backend.interface import Buffer, BufferType, Bytes, Device, Place
from engine.backend.memory_refusal import WHOLE_WORDS, Wanted, asking
from engine.backend.release import release_all
from engine.core.devices import BufferUsage
from engine.core.memory_pool import memory_pool
from engine.core.summary import Progress
from engine.errors import DeviceError, MemoryRefusedError, ModelError, Stopped
from engine.model.memory import ledger
from engine.model.upload import sending
from engine.model.weights import mapped_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import BufferTypeFacts
    from engine.core.summary import OnProgress, StopAsked
    from engine.core.tensor import Tensor
    from engine.gguf.reader import GgufFile
    from engine.model.kv_cache import KvCache
    from engine.model.planned_model import PlannedModel
    from engine.model.recurrent_state import RecurrentState
    from engine.model.weights import MappedRun, WeightBuffer, WeightSet


class Resident:
    """Everything of a model that has a place before a graph is planned; owns the buffers."""

    def __init__(self) -> None:
        self.places: dict[Tensor, Place] = {}
        self.buffers: list[Buffer] = []

    def release(self) -> None:
        """Give the memory back: all of it, whatever a driver says of some."""
        buffers, self.buffers = self.buffers, []
        self.places.clear()
        release_all(buffer.release for buffer in buffers)


def check_loadable(file: GgufFile) -> None:
    """ModelError when the file ends before its last tensor: it can be planned, not run."""
    cut = file.truncated
    if cut is None:
        return
    raise ModelError(
        f"{file.path.name} ends too early. It can be planned, not run.",
        f"Tensor {cut.i + 1} of {len(file.tensors)}, {cut.name}, needs bytes {cut.start:,} \u2013 "
        f"{cut.stop:,}; the file has {file.size:,}.",
        f"Usual cause: a download that stopped. Expected size {cut.expected_size:,} bytes.",
    )


def check_present(model: PlannedModel, devices: Mapping[str, Device]) -> None:
    """DeviceError when a device that the plan has something for is not among `devices` any more."""
    planned = [view.device for view in model.backends]
    # A device that joins others is none of the machine's.
    real = [member for device in planned for member in device.members or (device,)]
    for wanted in real:
        if wanted.name in devices:
            continue
        raise DeviceError(
            f"{wanted.name} is not there any more.",
            f"The model was planned for it. This machine has {', '.join(devices)}.",
            "Bring the device back, or open the model again to plan for what is there.",
        )


def check_memory(model: PlannedModel) -> None:
    """MemoryRefusedError when weights and caches need more memory than the computer has in all.

    Systems give out memory that they do not have, and end the process when it is used.
    """
    pool = memory_pool(ledger(model, ()), [view.device for view in model.backends])
    if not pool.is_impossible:
        return
    who = " and ".join(filter(None, (", ".join(pool.devices[:-1]), pool.devices[-1])))
    together = " together, as they work in the same memory" if len(pool.devices) > 1 else ""
    raise MemoryRefusedError(
        "The computer does not have the memory for this.",
        f"Weights and caches need {pool.needed_bytes:,} bytes on {who}{together}; it has "
        f"{pool.total_bytes:,} in all.",
        "Choose a shorter context (-c), or a smaller model.",
    )


def load_weights(
    resident: Resident,
    file: GgufFile,
    weights: WeightSet,
    devices: Mapping[str, Device],
    *,
    on_progress: OnProgress,
    stop_asked: StopAsked,
) -> None:
    """Place every weight; progress counts bytes that are copied.

    Memory that stores weights its own way, such as CPU_REPACK, converts them as they come. Large
    pages of the file that hold nothing else are let go after that, where the system can be asked.
    """
    check_loadable(file)
    uses = Counter(weight.info for buffer in weights.buffers for weight in buffer.weights)
    copied = file.copied_parts()
    if any(buffer.is_mapped for buffer in weights.buffers):
        _bring_in(file, on_progress, stop_asked)
    total = sum(buffer.n_bytes for buffer in weights.buffers if not buffer.is_mapped)
    done = 0
    for buffer in weights.buffers:
        device = devices[buffer.device.name]
        if buffer.is_mapped:
            for run in mapped_runs(buffer.buft, buffer.weights):
                _map(resident, file, run, device, buffer.buft.name)
            continue
        tensors = [weight.tensor for weight in buffer.weights]
        places = _allocate(resident, device, buffer.buft, tensors, BufferUsage.WEIGHTS)
        with sending(device, buffer.buft.name) as send:
            for i, (weight, place) in enumerate(zip(buffer.weights, places, strict=True)):
                if stop_asked():
                    raise Stopped
                place.buffer.init_tensor(place.offset, weight.tensor)
                send(place, file.tensor_bytes(weight.info))
                uses[weight.info] -= 1
                if uses[weight.info] == 0:
                    copied.add(*file.span_of(weight.info))
                resident.places[weight.tensor] = place
                done += weight.info.n_bytes
                on_progress(Progress(_label(buffer, device, i), done, total))


def place_weights(resident: Resident, weights: WeightSet, devices: Mapping[str, Device]) -> None:
    """Give every weight a place and read none: for devices on paper, and files without weights."""
    for buffer in weights.buffers:
        tensors = [weight.tensor for weight in buffer.weights]
        device = devices[buffer.device.name]
        buft = buffer.weights[0].buft  # Not that of a mapped file.
        places = _allocate(resident, device, buft, tensors, BufferUsage.WEIGHTS)
        resident.places.update(zip(tensors, places, strict=True))


def _bring_in(file: GgufFile, on_progress: OnProgress, stop_asked: StopAsked) -> None:
    """Bring the whole file in, unless it is larger than half of the memory that is free."""
    free_bytes, _ = memory_bytes()
    if 2 * file.size > free_bytes:
        return
    for done in file.bring_in():
        on_progress(Progress(f"reading {file.path.name}", done, file.size))
        if stop_asked():
            raise Stopped


def _label(buffer: WeightBuffer, device: Device, i_weight: int) -> str:
    """What is being loaded; for memory of a kind of its own also where to and how far it is."""
    name = buffer.weights[i_weight].info.name
    if all(buffer.buft.name != buft.facts.name for buft in device.extra_buffer_types()):
        return f"loading {name}"
    return f"loading {name} into {buffer.buft.name}, {i_weight + 1} of {len(buffer.weights)}"


def _map(resident: Resident, file: GgufFile, run: MappedRun, device: Device, buft: str) -> None:
    """A buffer of type `buft` from the page that the run begins in; each weight has its place."""
    start = file.data_offset + run.start
    start -= start % mmap.PAGESIZE
    memory: Bytes = file.mapped_bytes(start, file.data_offset + run.end)
    mapped = device.buffer_from_host_ptr(memory, buft)
    if mapped is None:
        raise DeviceError(
            f"{device.facts.name} cannot use a mapped file.",
            "It refused the memory that the file is mapped to.",
            "Read the file into memory instead (--no-mmap).",
        )
    mapped.usage = BufferUsage.WEIGHTS
    resident.buffers.append(mapped)
    for weight in run.weights:
        offset = file.data_offset + weight.info.offset - start
        resident.places[weight.tensor] = Place(mapped, offset)


def _allocate(
    resident: Resident,
    device: Device,
    facts: BufferTypeFacts,
    tensors: Sequence[Tensor],
    usage: BufferUsage = BufferUsage.ANY,
) -> list[Place]:
    """A place for each tensor, in as many buffers as their largest size asks for."""
    buft = buffer_type_of(device, facts)
    in_pieces = buft.alloc_tensors(tensors, usage)
    if in_pieces is not None:
        resident.buffers.extend(dict.fromkeys(place.buffer for place in in_pieces))
        return in_pieces
    sizes = [padded_bytes(facts, tensor) for tensor in tensors]
    spots, wanted = Wanted(
        WHOLE_WORDS[usage], sum(sizes), [tensor.name for tensor in tensors], sizes,
        is_pinned=facts == device.facts.host_buft,
    ).packed(facts.max_bytes)  # fmt: skip
    real: list[Buffer] = []
    for asked in wanted:
        with asking(device, asked):
            real.append(buft.alloc_buffer(asked.n_bytes, usage))
        resident.buffers.append(real[-1])
    return [Place(real[i_buffer], offset) for i_buffer, offset in spots]


def load_cache(
    resident: Resident, cache: KvCache | RecurrentState, devices: Mapping[str, Device]
) -> None:
    """Allocate and clear what a context keeps from batch to batch."""
    for group in cache.buffers:
        places = _allocate(resident, devices[group.device.name], group.buft, group.tensors)
        for buffer in dict.fromkeys(place.buffer for place in places):
            buffer.clear(0)
        resident.places.update(zip(group.tensors, places, strict=True))


def buffer_type_of(device: Device, facts: BufferTypeFacts) -> BufferType:
    """The device's buffer type with these facts."""
    name = facts.name
    if facts.row_shares is not None:
        split_type = device.reg.get_proc_address("ggml_backend_split_buffer_type")
        assert split_type is not None, device
        made: BufferType = split_type(device, facts)
        return made
    host = device.host_buffer_type()
    for buft in (device.buffer_type(), host, *device.extra_buffer_types()):
        if buft is not None and buft.facts.name == name:
            return buft
    raise DeviceError(f"{device.facts.name} has no memory called {name}.")
