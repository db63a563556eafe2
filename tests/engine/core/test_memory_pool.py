"""What devices that work in the computer's memory need of it together."""

from dataclasses import replace

from engine.backends.null.presets import MIB, cpu, cuda, plain
from engine.core.devices import mapped
from engine.core.memory_pool import memory_pool
from engine.core.plan import MemoryKind, MemoryLedger, MemoryRow
from engine.core.shards import MemberShare
from engine.model.meta_device import join

CPU = cpu("CPU", 1000 * MIB)
HALVES = [replace(plain(name, 900 * MIB), shares_memory=True) for name in ("A", "B")]
CARD = cuda("GPU0", 100 * MIB)


def row(device, n_mib, kind=MemoryKind.KV, buft=None):
    return MemoryRow(device.buft if buft is None else buft, device.name, kind, n_mib * MIB)


def test_what_parts_of_a_processor_need_is_added_up():
    rows = (row(HALVES[0], 600), row(HALVES[1], 600), row(CPU, 10))

    pool = memory_pool(MemoryLedger(rows), [*HALVES, CPU])

    assert (pool.devices, pool.needed_bytes) == (("A", "B", "CPU"), 1210 * MIB)
    assert pool.is_over
    assert pool.is_impossible


def test_a_card_has_memory_of_its_own():
    pool = memory_pool(MemoryLedger((row(CARD, 5000), row(CPU, 10))), [CARD, CPU])

    assert (pool.devices, pool.needed_bytes) == (("CPU",), 10 * MIB)
    assert not pool.is_over


def test_a_mapped_file_takes_none():
    rows = (row(CPU, 5000, MemoryKind.MODEL, mapped(CPU.buft)), row(HALVES[0], 1))

    pool = memory_pool(MemoryLedger(rows), [HALVES[0], CPU])

    assert pool.needed_bytes == MIB


def test_members_of_a_joined_device_count_with_their_shares():
    shares = tuple(MemberShare(d.name, 0.5, 300 * MIB, 0, 0.5, 300 * MIB) for d in HALVES)

    pool = memory_pool(MemoryLedger((), shares), [join(HALVES), CPU])

    assert pool.needed_bytes == 1200 * MIB


def test_a_computer_that_does_not_say_refuses_nothing():
    silent = replace(CPU, memory_free=0, memory_total=0)

    pool = memory_pool(MemoryLedger((row(silent, 5000), row(HALVES[0], 5000))), [HALVES[0], silent])

    assert not pool.is_over
    assert not pool.is_impossible
