"""Which .cl files a program is made of, and the macros by which they know its types. Pure."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from engine.backends.opencl.encode_attention import MAX_HEAD, MAX_LONG_HEAD
from engine.backends.opencl.readers import READERS
from engine.core.types import TYPE_BY_LABEL, TensorType

ProgramKey = tuple[str, str]
"""(family, types): what FAMILIES describes, and the labels of the types it is built for."""


class Family(NamedTuple):
    """The .cl files of a family, in order, and what each of its types is called in them.

    `files` know no types but those that rows are read of, `typed_files` come after them and are
    written for one choice of types. The role of a type becomes a macro: role "weight" of q5_0
    defines WEIGHT_Q5_0. Where `reads`, rows of the types are read: `weight8` stands for
    values8_q5_0, and so on (products.cl). `macros` are defined besides.
    """

    files: tuple[str, ...] = ()
    typed_files: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    reads: bool = True
    macros: tuple[str, ...] = ()


ATTENTION = Family(("quantize", "slope"), ("flash_attn",), ("key", "value"))


FAMILIES: dict[str, Family] = {
    "elementwise": Family(("chunks", "elementwise")),
    "copies": Family(("chunks", "copies")),
    "rows": Family(("norm_row", "rows")),
    "soft_max": Family(("slope", "soft_max")),
    "rope": Family(("rope",)),
    "round_rows": Family(("quantize", "round_rows")),
    "norm_chain": Family(("quantize", "round_rows", "norm_row", "norm_chain")),
    "set_rows": Family(("quantize",), ("set_rows",), ("target",), reads=False),
    "get_rows": Family((), ("get_rows",), ("weight",)),
    "mul_mat": Family(("whole",), ("whole_rows", "products", "mul_mat"), ("weight",)),
    "mul_mat_id": Family(("whole",), ("whole_rows", "products", "mul_mat_id"), ("weight",)),
    "flash_attn": ATTENTION._replace(macros=(f"MAX_HEAD={MAX_HEAD}",)),
    "flash_attn_long": ATTENTION._replace(macros=(f"MAX_HEAD={MAX_LONG_HEAD}",)),
}
"""Every family; common.cl comes before its files."""


def shared_files(key: ProgramKey) -> list[str]:
    """The .cl files of a program that come once, whatever other programs are built with it."""
    family = FAMILIES[key[0]]
    readers = [READERS[t].file for t in _types(key)] if family.reads else []
    return list(dict.fromkeys(["common", *readers, *family.files]))


def all_files(key: ProgramKey) -> list[str]:
    """All .cl files of a program, in order: those that read its types before the family's own."""
    return [*shared_files(key), *FAMILIES[key[0]].typed_files]


def type_macros(key: ProgramKey) -> list[str]:
    """The macros that name its types for the files that come once."""
    return [f"TYPE_{t.label}".upper() for t in _types(key)]


def macros_of(key: ProgramKey) -> list[str]:
    """The macros by which the typed files know their types: NAME or NAME=value."""
    family = FAMILIES[key[0]]
    defined = list(family.macros)
    for role, label in _roles(key):
        defined.append(f"{role}_{label}".upper())
        if family.reads:
            defined += _reading(role, TYPE_BY_LABEL[label])
    return list(dict.fromkeys(defined))


def read(name: str) -> str:
    """One .cl file, with a line directive so that build logs name it."""
    text = files("engine.backends.opencl").joinpath("kernels", f"{name}.cl").read_text("utf-8")
    return f'#line 1 "{name}.cl"\n{text}'


def _reading(role: str, tensor_type: TensorType) -> list[str]:
    """What the functions that read a type are called in the typed files."""
    label, reader = tensor_type.label, READERS[tensor_type]
    defined = [f"{role}8=values8_{label}"]
    defined += [] if tensor_type.is_quantized else [f"{role}1=values1_{label}"]
    if role == "weight" and reader.has_add_block:
        defined.append(f"add_block=add_block_{label}")
    if role == "weight" and reader.whole is not None:
        defined += [f"add_whole=add_whole_{label}", f"BLOCK_ELEMS={tensor_type.block_elems}"]
        defined.append(f"BLOCK_BYTES={tensor_type.block_bytes}")
    return defined


def _roles(key: ProgramKey) -> list[tuple[str, str]]:
    return list(zip(FAMILIES[key[0]].roles, key[1].split(), strict=True))


def _types(key: ProgramKey) -> list[TensorType]:
    return [TYPE_BY_LABEL[label] for label in key[1].split()]
