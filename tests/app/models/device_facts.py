"""Devices, one left out and a report of what was tried, as an engine says it."""

import dataclasses

from engine.core.devices import DeviceCaps, DeviceType, Unavailable
from engine.core.load_report import Attempt, Linkage, LoadReport, Origin, Outcome
from engine.core.summary import BufferTypeSummary, DeviceSummary

GIB = 1024**3
SLOW_PATH = "/plugins/splitscope_backend_slow.py"
WHY = "it was asked for"


def attempt(name, outcome, reason="", *, score=None, folder="/plugins", kind="ggml"):
    backend, _, variant = name.removeprefix("libggml-").partition("-")
    return Attempt(
        f"{folder}/{name}.so", kind, backend, variant, WHY, outcome, reason,
        found=outcome is not Outcome.NOT_FOUND, api_version=None if score is None else 2,
        score=score,
    )  # fmt: skip


REPORT = LoadReport(
    (
        Attempt(SLOW_PATH, "python", "slow", "", WHY, Outcome.REGISTERED, opened=True,
                symbol="backend_init", api_version=2, score=1),
        attempt("libggml-cpu-haswell", Outcome.NOT_CHOSEN, "its score is 64", score=64),
        attempt("libggml-cpu-zen4", Outcome.NOT_CHOSEN, "its score is 1984", score=1984),
        attempt("libggml-cuda", Outcome.REFUSED, "libcudart.so.12: cannot open\nshared object"),
        attempt("libggml-vulkan", Outcome.NOT_FOUND, "there is no such file"),
    )
)  # fmt: skip


def origin(backend, *, place="", decided_by="default"):
    is_file = place.startswith("/")
    return Origin(
        backend,
        Linkage.DYNAMIC if is_file else Linkage.STATIC,
        place or f"engine.backends.{backend}.reg",
        "--load" if is_file else f"--backends {backend}",
        "off" if is_file else "on",
        WHY if is_file else decided_by,
        "backend_init" if is_file else "create",
        2,
        kind="python" if is_file else "",
        score=1 if is_file else None,
        attempts=REPORT.attempts[:1] if is_file else (),
    )


def device(name, type_, *, gib=0, place="", **more):
    return DeviceSummary(
        name, f"{name} of a test", type_, gib * GIB, gib * GIB,
        memory_source="what the driver says" if gib else "",
        reg=name, reg_index=0,
        caps=DeviceCaps(events=True),
        bufts=(BufferTypeSummary(name, "default", 128, 8 * GIB, False),),
        origin=origin(name.lower(), place=place), **more,
    )  # fmt: skip


OPENCL = device("OpenCL0", DeviceType.GPU, gib=12, software="shares host memory")
BLAS = device("BLAS", DeviceType.ACCEL)
SLOW = device("Slow", DeviceType.GPU, place=SLOW_PATH, features=(("AVX2", "1"), ("LANES", "8")))
CPU = device("CPU", DeviceType.CPU, gib=24)
DEVICES = (OPENCL, BLAS, SLOW, CPU)
UNAVAILABLE = (
    Unavailable("vulkan", "no driver was found", "Install a Vulkan driver."),
    Unavailable("OpenCL1", "it is the same device as OpenCL0", "Leave it out.", hidden=True),
)


def replace(summary, **of_origin):
    """Return the device with another origin."""
    return dataclasses.replace(summary, origin=dataclasses.replace(summary.origin, **of_origin))
