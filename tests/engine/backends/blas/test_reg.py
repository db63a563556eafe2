"""The registration: one accelerator in the CPU's memory, used by choice, or the reason for none."""

import numpy as np
import pytest

from engine.backend.registry import Registry
from engine.backends import BUILTIN, register_builtin
from engine.backends.blas import library, reg
from engine.backends.blas.reg import BlasReg, create
from engine.backends.cpu.reg import create as create_cpu
from engine.core.devices import DeviceType
from engine.core.options import BlasUse


def test_the_device_is_an_accelerator_without_memory_of_its_own():
    facts = create().devices()[0].facts

    assert (facts.name, facts.type, facts.reg) == ("BLAS", DeviceType.ACCEL, "BLAS")
    assert (facts.memory_free, facts.memory_total) == (0, 0)
    assert (facts.caps.asynchronous, facts.caps.events, facts.host_buft) == (False, False, None)
    assert facts.description.startswith(library.library_name())


def test_its_memory_is_the_cpus():
    blas, cpu = create().devices()[0], create_cpu().devices()[0]

    assert blas.facts.buft == cpu.facts.buft
    assert blas.buffer_type().facts == cpu.buffer_type().facts
    buffer = blas.buffer_type().alloc_buffer(100)
    assert (buffer.address % 32, buffer.host is None) == (0, False)


def test_memory_that_exists_becomes_a_buffer_without_a_copy():
    memory = np.zeros(256, dtype=np.uint8)

    buffer = create().devices()[0].buffer_from_host_ptr(memory, "CPU_Mapped")

    assert (buffer.buft.name, buffer.buft.is_host) == ("CPU_Mapped", True)
    assert buffer.address == memory.ctypes.data


@pytest.mark.parametrize("use", [BlasUse.AUTO, BlasUse.ALL])
def test_it_is_used_as_the_option_says(use):
    used = create().devices()[0].facts.in_use(use)

    assert used is not None
    assert used.rules.use is use


def test_it_is_not_used_unless_that_is_asked():
    assert create().devices()[0].facts.in_use(BlasUse.OFF) is None


def test_it_comes_after_gpus_and_before_the_cpu():
    assert [builtin.name for builtin in BUILTIN] == ["OpenCL", "BLAS", "CPU"]


def test_unknown_functions_are_absent():
    assert create().get_proc_address("ggml_backend_get_features") is None


@pytest.mark.parametrize(
    ("built_with", "name"),
    [
        ({"name": "scipy-openblas", "found": True, "version": "0.3.31"}, "OpenBLAS 0.3.31"),
        ({"name": "openblas64", "found": True, "version": "0.3.21"}, "OpenBLAS 0.3.21"),
        ({"name": "accelerate", "found": True, "version": "unknown"}, "accelerate unknown"),
        ({"name": "mkl-sdl", "found": True}, "mkl-sdl"),
        ({"name": "none", "found": False}, ""),
        ({}, ""),
    ],
)
def test_the_library_is_named_as_numpy_was_built(monkeypatch, built_with, name):
    config = {"Build Dependencies": {"blas": built_with}}
    monkeypatch.setattr(np, "show_config", lambda mode: config)

    assert library.library_name() == name


def test_without_a_library_there_is_no_device_and_the_reason_is_told():
    family = BlasReg("")

    assert family.devices() == ()
    (missing,) = family.unavailable()
    assert (missing.name, missing.reason) == ("BLAS", "numpy was built without a BLAS library")


def test_without_the_package_for_threads_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(reg.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr("engine.backends.BUILTIN", tuple(b for b in BUILTIN if b.name == "BLAS"))
    registry = Registry()

    register_builtin(registry)

    (missing,) = registry.unavailable()
    assert (missing.name, missing.reason, missing.hint) == (
        "BLAS",
        "threadpoolctl is missing",
        "Install threadpoolctl.",
    )
