"""What the operating system says of this computer, from files as Linux writes them."""

import os

from engine.backend import computer


def test_there_is_a_processor_with_memory():
    free, total = computer.memory_bytes()

    assert 0 < free <= total
    assert total > 2**28
    assert computer.cpu_model()


def test_threads_of_one_core_count_once_and_others_cores_not_at_all(tmp_path, monkeypatch):
    """CPUs 0 to 3 are two cores of two threads; this process may use 0, 1 and 2."""
    for i_cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        folder = tmp_path / f"cpu{i_cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(computer, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)

    assert computer.physical_cores() == 2


def test_free_memory_is_what_programs_can_still_get(tmp_path, monkeypatch):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    1234 kB\n")
    monkeypatch.setattr(computer, "_MEMINFO", meminfo)

    assert computer.memory_bytes() == (1234 * 1024, 9000 * 1024)
    assert computer.memory_source() == "MemAvailable of the system"


def test_a_system_without_these_files_still_has_a_name_and_memory(tmp_path, monkeypatch):
    for name in ("_MEMINFO", "_CPUINFO", "_TOPOLOGY"):
        monkeypatch.setattr(computer, name, tmp_path / "none")

    free, total = computer.memory_bytes()
    assert free == total
    assert computer.memory_source() == "all of it, as ggml says it"
    assert computer.cpu_model()
    assert computer.physical_cores() >= 1
