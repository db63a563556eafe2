"""What a recorded llama.cpp command line means for us: options and devices on paper."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.core.options import OPTION_SPECS, Options
from tests.engine.paper import parse_virtual

if TYPE_CHECKING:
    from engine.core.devices import DeviceFacts

SERVER_MIB = "24105"
"""Free memory of the recorded servers, where a log does not say it."""

LOADS_BACKENDS = frozenset({"-dev", "--device", "--list-devices", "--rpc", "-ot"})
"""Options that make llama.cpp look for GGML_BACKEND_PATH; so do their long forms."""

_SPELLED = {
    "--load-mode none": "--no-mmap",
    "--load-mode mmap": "",
    "--override-tensor": "-ot",
}
"""llama.cpp's longer ways to say the same."""


def options_of(command: str) -> Options:
    """Our options for a recorded command line; what is llama.cpp's alone is left out."""
    by_flag = {flag: spec for spec in OPTION_SPECS for flag in spec.flags}
    options, words = Options(), iter(_spelled(command))
    for word in words:
        spec = by_flag.get(word)
        if spec is None:
            continue
        value: Any
        if spec.kind is bool:
            value = not getattr(Options(), spec.field)
        else:
            value = spec.parse(next(words))
        if spec.is_repeatable:
            value = (*getattr(options, spec.field), *value)
        options = replace(options, **{spec.field: value})
    return options


def _spelled(command: str) -> list[str]:
    for theirs, ours in _SPELLED.items():
        command = f"{command} ".replace(f" {theirs} ", f" {ours} ")
    return command.split()


def recorded_devices(command: str, log: str = "") -> list[DeviceFacts]:
    """The devices of a recorded run, with the free memory that its log (optional) tells."""
    words = command.split()
    devices = [*_servers(command, log), *_loaded(command, words, log)]
    return [*devices, parse_virtual(f"CPU:cpu:{SERVER_MIB}")]


def _servers(command: str, log: str) -> list[DeviceFacts]:
    """RPC servers, each one GPU."""
    found = re.search(r"--rpc (\S+)", command)
    endpoints = found.group(1).split(",") if found else []
    offload = ",offload=32" if "ORACLE_RPC_OFFLOAD=1" in command else ""
    return [
        parse_virtual(
            f"RPC{i}:gpu:{_free_mib(f'RPC{i}', log)}:preset=rpc,buft=RPC0[{endpoint}]{offload}"
        )
        for i, endpoint in enumerate(endpoints)
    ]


def _loaded(command: str, words: list[str], log: str) -> list[DeviceFacts]:
    """What GGML_BACKEND_PATH adds, if any option makes llama.cpp look there."""
    found = re.search(r"GGML_BACKEND_PATH=\S*libggml-(\w+)", command)
    if found is None or not LOADS_BACKENDS.intersection(words):
        return []
    if found.group(1) == "blas":
        return [parse_virtual("BLAS:accel:0:preset=blas")]
    assert found.group(1) == "vulkan", f"no devices on paper for {found.group(1)}"
    name = "Vulkan0"
    return [parse_virtual(f"{name}:gpu:{_free_mib(name, log)}:preset=vulkan")]


def _free_mib(name: str, log: str) -> str:
    found = re.search(rf"using device {name} [^\n]* - (\d+) MiB free", log)
    return found.group(1) if found else SERVER_MIB
