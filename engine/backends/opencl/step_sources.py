"""The source of a program that has many kernels as steps (kernels/steps.cl). Pure.

Files that know no types come once. A family that is built for types comes once a choice of types:
what it defines gets other names each time, by macros around it. Such a file therefore cannot ask
whether a macro with the name of one of its functions is defined.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.backends.opencl.families import FAMILIES, macros_of, read, shared_files, type_macros

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.backends.opencl.families import ProgramKey
    from engine.backends.opencl.steps import StepKernel

_FUNCTION = re.compile(r"^(?:static|KERNEL) (?:\w+ )*?(\w+)\(", re.MULTILINE)
_NAMED_BY_MACRO = re.compile(r"^[A-Z_]+\((\w+), ", re.MULTILINE)
_MACRO = re.compile(r"^ *# *define (\w+)", re.MULTILINE)
_ARGUMENTS = {"p": "b[a[{}]]", "u": "a[{}]", "i": "(int)a[{}]", "f": "as_float((uint)a[{}])"}


def step_source(kernels: Sequence[StepKernel]) -> str:
    """The whole program; a kernel's number is its place in `kernels`."""
    programs = list(dict.fromkeys(kernel.program for kernel in kernels))
    names = ["common"]
    for program in programs:
        names += shared_files(program)
    texts = [read(name) for name in dict.fromkeys(names)]
    texts += [_of_types(program, i) for i, program in enumerate(programs) if _own_files(program)]
    return "\n".join((*texts, _dispatch(kernels, programs), read("steps")))


def step_options(kernels: Iterable[StepKernel]) -> list[str]:
    """The macros that name the types of all kernels for the files that come once."""
    macros = [macro for kernel in kernels for macro in type_macros(kernel.program)]
    return ["-DAS_STEPS", *(f"-D{macro}" for macro in dict.fromkeys(macros))]


def _own_files(program: ProgramKey) -> tuple[str, ...]:
    return FAMILIES[program[0]].typed_files


def _of_types(program: ProgramKey, number: int) -> str:
    """The files of a family for some types, between macros that keep its names apart."""
    text = "\n".join(read(name) for name in _own_files(program))
    macros = dict(_split_macro(macro) for macro in macros_of(program))
    functions = (*_FUNCTION.findall(text), *_NAMED_BY_MACRO.findall(text))
    renamed = {name: f"{name}_{number}" for name in functions if name not in macros}
    before = [f"#define {name} {value}" for name, value in (renamed | macros).items()]
    after = [f"#undef {n}" for n in dict.fromkeys((*renamed, *macros, *_MACRO.findall(text)))]
    return "\n".join((*before, text, *after))


def _split_macro(macro: str) -> tuple[str, str]:
    name, _, value = macro.partition("=")
    return name, value or "1"


def _dispatch(kernels: Sequence[StepKernel], programs: list[ProgramKey]) -> str:
    """run_item: the call of every kernel with arguments from the table."""
    lines = [
        "static void run_item(",
        "    ulong number, const ulong *item, global const ulong *a, global char *const *b)",
        "{",
        "    switch (number) {",
    ]
    for number, kernel in enumerate(kernels):
        suffix = f"_{programs.index(kernel.program)}" if _own_files(kernel.program) else ""
        values = (_ARGUMENTS[kind].format(i) for i, kind in enumerate(kernel.kinds))
        called = f"{kernel.name}{suffix}({', '.join(('item', *values))})"
        lines.append(f"    case {number}: {called}; break;")
    return "\n".join((*lines, "    }", "}"))
