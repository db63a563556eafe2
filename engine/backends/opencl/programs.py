"""Programs of a device: one a .cl family and its types, built when first asked for."""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from engine.backends.opencl.encode_attention import MAX_HEAD, MAX_LONG_HEAD
from engine.backends.opencl.readers import READERS
from engine.core.types import TYPE_BY_LABEL, TensorType
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

ProgramKey = tuple[str, str]
"""(family, types): what FAMILIES describes, and the labels of the types it is built for."""


class Family(NamedTuple):
    """The .cl files of a family, in order, and what each of its types is called in them.

    The role of a type becomes a macro: role "weight" of q5_0 defines WEIGHT_Q5_0. Where `reads`,
    rows of the types are read: `weight8` stands for values8_q5_0, and so on (products.cl).
    `macros` are defined besides.
    """

    files: tuple[str, ...]
    roles: tuple[str, ...] = ()
    reads: bool = True
    macros: tuple[str, ...] = ()


ATTENTION = Family(("quantize", "slope", "flash_attn"), ("key", "value"))


FAMILIES: dict[str, Family] = {
    "elementwise": Family(("chunks", "elementwise")),
    "copies": Family(("chunks", "copies")),
    "rows": Family(("norm_row", "rows")),
    "soft_max": Family(("slope", "soft_max")),
    "rope": Family(("rope",)),
    "round_rows": Family(("quantize", "round_rows")),
    "norm_chain": Family(("quantize", "round_rows", "norm_row", "norm_chain")),
    "set_rows": Family(("quantize", "set_rows"), ("target",), reads=False),
    "get_rows": Family(("get_rows",), ("weight",)),
    "mul_mat": Family(("whole", "products", "mul_mat"), ("weight",)),
    "mul_mat_id": Family(("whole", "products", "mul_mat_id"), ("weight",)),
    "flash_attn": ATTENTION._replace(macros=(f"MAX_HEAD={MAX_HEAD}",)),
    "flash_attn_long": ATTENTION._replace(macros=(f"MAX_HEAD={MAX_LONG_HEAD}",)),
}
"""Every family; common.cl comes before its files."""


class Programs:
    """The built programs of one device."""

    def __init__(
        self, context: cl.Context, device: cl.Device, device_name: str, options: Sequence[str]
    ) -> None:
        """`options` are given to the compiler for every family."""
        self._context = context
        self._device = device
        self._device_name = device_name
        self._options = tuple(options)
        self._built: dict[ProgramKey, cl.Program] = {}
        self._kernels: dict[tuple[ProgramKey, str], cl.Kernel] = {}

    def kernel(self, key: ProgramKey, name: str, arg_types: Sequence[object]) -> cl.Kernel:
        """The kernel object of that name; builds its program first if need be.

        There is one object a kernel, whose arguments are set before each launch (2 us for 26 of
        them): making one takes pyopencl half a millisecond, which a graph of 600 nodes would feel.
        `arg_types` are numpy dtypes, None for buffers; they are set once.
        """
        if (key, name) not in self._kernels:
            if key not in self._built:
                self._built[key] = self._build_family(key)
            kernel = cl.Kernel(self._built[key], name)
            kernel.set_scalar_arg_dtypes(list(arg_types))
            self._kernels[key, name] = kernel
        return self._kernels[key, name]

    def built(self) -> frozenset[ProgramKey]:
        """The programs built so far."""
        return frozenset(self._built)

    def _build_family(self, key: ProgramKey) -> cl.Program:
        label = f"{self._device_name}: {' '.join(key)}"
        options = [*self._options, *_options(key)]
        source = "\n".join(_read(name) for name in _files(key))
        return build_program(self._context, self._device, source, options, label)


def _types(key: ProgramKey) -> list[TensorType]:
    return [TYPE_BY_LABEL[label] for label in key[1].split()]


def _files(key: ProgramKey) -> list[str]:
    """The .cl files of a program: those that read its types come before the family's own."""
    family = FAMILIES[key[0]]
    readers = [READERS[t].file for t in _types(key)] if family.reads else []
    return list(dict.fromkeys(["common", *readers, *family.files]))


def _options(key: ProgramKey) -> list[str]:
    """The macros by which the .cl files know the types of a program."""
    family = FAMILIES[key[0]]
    defined = list(family.macros)
    for role, tensor_type in zip(family.roles, _types(key), strict=True):
        label = tensor_type.label
        defined.append(f"{role}_{label}".upper())
        if family.reads:
            defined += [f"TYPE_{label}".upper(), f"{role}8=values8_{label}"]
            defined += [] if tensor_type.is_quantized else [f"{role}1=values1_{label}"]
        if role == "weight" and READERS[tensor_type].has_add_block:
            defined.append(f"add_block=add_block_{label}")
        if role == "weight" and READERS[tensor_type].whole is not None:
            defined += [f"add_whole=add_whole_{label}", f"BLOCK_ELEMS={tensor_type.block_elems}"]
            defined.append(f"BLOCK_BYTES={tensor_type.block_bytes}")
    return [f"-D{macro}" for macro in dict.fromkeys(defined)]


def build_program(
    context: cl.Context, device: cl.Device, source: str, options: Sequence[str], label: str
) -> cl.Program:
    """Build `source` for one device.

    Raises: DeviceError with label, device and the compiler's log in its details.
    """
    program = cl.Program(context, source)
    try:
        with warnings.catch_warnings():
            # PoCL always writes something into the build log, and pyopencl warns of any log.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program.build(list(options), devices=[device])
    except cl.RuntimeError as error:
        raise DeviceError(
            f"The kernels of {label.strip()} could not be built.",
            "The OpenCL driver's compiler refused them.",
            "Install a newer driver, or run without OpenCL.",
            details=f"device: {device.name.strip()}\nkernels: {label.strip()}\n{error}",
        ) from error
    return program


def _read(name: str) -> str:
    """One .cl file, with a line directive so that build logs name it."""
    text = files("engine.backends.opencl").joinpath("kernels", f"{name}.cl").read_text("utf-8")
    return f'#line 1 "{name}.cl"\n{text}'
