"""Which options differ between two sets. Pure."""

from __future__ import annotations

from dataclasses import fields

from engine.core.options import DEFAULTS, Options


def changed_fields(before: Options, after: Options) -> tuple[str, ...]:
    """The names of the options that differ, in the order of the option table."""
    names = (item.name for item in fields(Options))
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))


def not_default(options: Options) -> tuple[str, ...]:
    """The names of the options that are not at llama.cpp's default."""
    return changed_fields(DEFAULTS, options)
