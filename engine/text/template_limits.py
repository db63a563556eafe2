"""What a chat template may do, and how much of it.

A template comes with a model from a stranger, so it runs in jinja2's immutable sandbox with a
budget. Every loop step, call, filter, attribute, operator, literal container and piece of output
passes a method of `LimitedEnvironment`, which charges for it; the rest is left out or refused.

Bounded: loop steps and calls together (`max_work`), the size of any one value and of all values
together, the output (`max_chars`), the length of the source, integers (4096 bits), Python's
recursion, and time (`max_ns`, looked at on every charge). Left out: lipsum, padding of text
(`%` on long widths, widths in str.format, center, ljust), filters that no chat template needs.
Not bounded: the time of one single step, which works on at most `max_chars` characters and so takes
milliseconds; and the compilation of a source of at most `max_source_chars`.
"""

from __future__ import annotations

import json
import re
import string
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import do_indent
from jinja2.lexer import TokenStream
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.text.template_places import Marker, Tracker, placed

if TYPE_CHECKING:
    from jinja2.parser import Parser

TEMPLATE_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a template's own mistakes come out as: jinja2 passes Python's errors on."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """How much a template may do. One unit of work is a step or 16 characters handled."""

    max_source_chars: int = 1 << 17
    max_chars: int = 1 << 23
    max_work: int = 1 << 22
    max_ns: int = 5_000_000_000
    clock: Callable[[], int] = time.monotonic_ns


class OverLimitError(Exception):
    """A template did more than its limits allow; the text says of what."""


_ELEMENT_CHARS = 16
"""What one element of a container counts as."""

_MAX_INT_BITS = 4096

_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_PLAIN = (str, int, float, Undefined, type(None))


class Budget:
    """Work done so far, and the measure of values."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._work = 0
        self._written_chars = 0
        self._end_ns = limits.clock() + limits.max_ns

    def charge(self, chars: int = 0) -> None:
        """Count one step that handles so many characters."""
        self._work += 1 + chars // 16
        if self._work > self._limits.max_work:
            raise OverLimitError("it takes too many steps")
        if self._limits.clock() > self._end_ns:
            raise OverLimitError("it takes too long")

    def fits(self, chars: int) -> None:
        """Refuse a value of so many characters before it is made."""
        if chars > self._limits.max_chars:
            raise OverLimitError("it builds a value that is too large")

    def written(self, chars: int) -> None:
        """Count output, that of macros and set blocks too."""
        self._written_chars += chars
        self.charge(chars)
        if self._written_chars > self._limits.max_chars:
            raise OverLimitError("it writes too much text")

    def admit(self, value: Any) -> Any:
        """The same value, measured: containers count as often as they are reached."""
        self.charge(self.size(value))
        return value

    def size(self, value: Any, *, printable: bool = False) -> int:
        """Characters a value stands for; with `printable` only plain values are allowed."""
        if isinstance(value, str):
            return len(value)
        total, stack = 0, [value]
        while stack:
            self.fits(total)
            item = stack.pop()
            if isinstance(item, dict):
                total += 2 * len(item) * _ELEMENT_CHARS
                stack += item.keys()
                stack += item.values()
            elif isinstance(item, _CONTAINERS):
                total += len(item) * _ELEMENT_CHARS
                stack += item
            else:
                total += _leaf_chars(item, printable=printable)
        self.fits(total)
        return total

    def text(self, value: Any) -> str:
        """`str(value)` of something plain, size known before it is written out."""
        self.size(value, printable=True)
        return str(value)


def _leaf_chars(item: Any, *, printable: bool) -> int:
    if isinstance(item, str):
        return len(item)
    if isinstance(item, int) and item.bit_length() > _MAX_INT_BITS:
        raise OverLimitError("it computes a number that is too large")
    if printable and not isinstance(item, _PLAIN):
        raise OverLimitError("it writes out something that is not text")
    return 1


_STR_METHODS = frozenset(
    {"capitalize", "lower", "swapcase", "title", "upper"}
    | {"count", "endswith", "find", "index", "rfind", "rindex", "startswith"}
    | {"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric"}
    | {"isspace", "istitle", "isupper"}
    | {"join", "partition", "replace", "rpartition", "rsplit", "split", "splitlines"}
    | {"lstrip", "removeprefix", "removesuffix", "rstrip", "strip"}
)
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, _STR_METHODS),
    (bytes, frozenset()),
    (int, frozenset()),
    (float, frozenset({"is_integer"})),
    (dict, frozenset({"get", "items", "keys", "values"})),
    (list, frozenset({"count", "index"})),
    (tuple, frozenset({"count", "index"})),
)

_TEXT_FILTERS = frozenset(
    {"capitalize", "e", "escape", "lower", "safe", "string", "title", "trim", "upper"}
)
_FILTERS = _TEXT_FILTERS | {
    *("abs", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items"),
    *("last", "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("select", "selectattr", "sort", "unique"),
}


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for one rendering with a budget.

    The rewritten template calls some of its methods; a template itself cannot name them.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, limits: TemplateLimits) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlocks],
            cache_size=0,
        )
        self._limits = limits
        self.budget = Budget(limits)
        self.tracker = Tracker()
        self.globals.pop("lipsum")
        self.globals["range"] = self._range
        self.filters = {name: self._metered(name) for name in _FILTERS}
        self.filters |= {
            "join": self._join,
            "replace": self._replace,
            "indent": self._indent,
            "tojson": self._tojson,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > self._limits.max_source_chars:
            raise OverLimitError("its source is too long")
        tree = super()._parse(source, name, filename)
        Marker(self, self.tracker, "begin").visit(tree)
        _Meter(self).visit(tree)
        return tree

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        tokens = placed(source, self.lexer.tokeniter(source, name, filename, state))
        return TokenStream(self.lexer.wrap(tokens, name, filename), name, filename)

    # What the rewritten template calls.

    def begin(self, i_mark: int) -> bool:
        """Tell where the template is; true."""
        return self.tracker.begin(i_mark)

    def steps(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop, each charged for."""
        for item in iterable:
            self.budget.charge()
            yield item

    def emit(self, value: Any) -> str:
        """A piece of output as text, charged for."""
        text = self.budget.text(value)
        self.budget.written(len(text))
        return text

    def concat_values(self, *values: Any) -> str:
        """What `~` gives."""
        texts = [self.budget.text(value) for value in values]
        self.budget.fits(sum(map(len, texts)))
        result = "".join(texts)
        self.budget.charge(len(result))
        return result

    def admit(self, value: Any) -> Any:
        """A container literal, measured."""
        return self.budget.admit(value)

    def weigh(self, value: Any) -> Any:
        """The operand of a comparison or the result of a slice, charged for by its own length."""
        self.budget.charge(_length(value))
        return value

    # What jinja2's sandbox lets us look at.

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call, charged for by its arguments and its result."""
        owner = getattr(obj, "__self__", None)
        self.budget.charge(sum(map(_length, args)))
        if owner is not self and not isinstance(owner, str):
            return self.budget.admit(super().call(context, obj, *args, **kwargs))
        # jinja2 hands the block's variables to functions that take the context; these do not.
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(owner, str):
            return self._call_str(obj, owner, *args, **kwargs)
        return obj(*args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator, refused when its result would be too large."""
        budget = self.budget
        budget.charge()
        if operator == "*":
            budget.fits(_product_chars(left, right))
        elif operator == "**":
            _fits_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _fits_format(budget, left, right)
        return budget.admit(super().call_binop(context, operator, left, right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute, charged for."""
        self.budget.charge()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item, charged for."""
        self.budget.charge()
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` that puts whole values into a text, nothing else; None for anything else."""
        text = getattr(value, "__self__", None)
        if not isinstance(text, str) or getattr(value, "__name__", "") != "format":
            return None

        def filled(*args: Any, **kwargs: Any) -> str:
            return self._format(text, args, kwargs)

        return filled

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods of plain values from a list of those whose result is bounded."""
        for kind, names in _METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    # Filters and functions of our own.

    def _call_str(self, method: Any, owner: str, *args: Any, **kwargs: Any) -> Any:
        """A string's method; those whose result may be large through our own."""
        self.budget.charge(len(owner))
        if method.__name__ == "join":
            return self._join(args[0], owner)
        if method.__name__ == "replace":
            return self._replace(owner, *args)
        return self.budget.admit(method(*args, **kwargs))

    def _format(self, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        for _, field, padding, conversion in string.Formatter().parse(text):
            if (
                padding
                or conversion
                or (field and not field.isidentifier() and not field.isdigit())
            ):
                raise SecurityError("it formats more than whole values")
        values = [self.budget.text(value) for value in args]
        named = {name: self.budget.text(value) for name, value in kwargs.items()}
        longest = max(map(len, (*values, *named.values())), default=0)
        self.budget.fits(len(text) + text.count("{") * longest)
        return str(self.budget.admit(text.format(*values, **named)))

    def _metered(self, name: str) -> Callable[..., Any]:
        wrapped = self.filters[name]

        def metered(*args: Any, **kwargs: Any) -> Any:
            self.budget.charge(sum(map(_length, args)))
            if name in _TEXT_FILTERS:
                for arg in args:
                    if not isinstance(arg, (EvalContext, type(self), Context)):
                        self.budget.size(arg, printable=True)
            return self.budget.admit(wrapped(*args, **kwargs))

        return update_wrapper(metered, wrapped)

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        self.budget.fits(len(numbers) * _ELEMENT_CHARS)
        return numbers

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        texts, total, gap = [], 0, self.budget.text(d)
        for item in value:
            part = item if attribute is None else self.getitem(item, attribute)
            texts.append(self.budget.text(part))
            total += len(texts[-1]) + len(gap)
            self.budget.charge()
            self.budget.fits(total)
        return str(self.budget.admit(gap.join(texts)))

    def _replace(self, s: Any, old: str, new: str, count: int = -1) -> str:
        text = self.budget.text(s)
        n_found = len(text) + 1 if old == "" else text.count(old)
        self.budget.fits(len(text) + n_found * len(new))
        return str(self.budget.admit(text.replace(old, new, count)))

    def _indent(
        self,
        s: Any,
        width: int | str = 4,
        first: Any = False,
        blank: Any = False,
    ) -> str:
        text = self.budget.text(s)
        n_pad = len(width) if isinstance(width, str) else int(width)
        self.budget.fits(len(text) + n_pad * (text.count("\n") + 2))
        return str(self.budget.admit(do_indent(text, width, bool(first), bool(blank))))

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise OverLimitError("it indents JSON by more than 16")
        self.budget.size(value, printable=True)
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        return str(self.budget.admit(text))


class GenerationBlocks(Extension):
    """`{% generation %}`, which marks the answers for training and changes nothing here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a plain attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body in place of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Rewrites a parsed template so that every loop, literal, `~`, slice and output is charged."""

    def __init__(self, environment: LimitedEnvironment) -> None:
        self._environment = environment

    def visit(self, node: nodes.Node, *_args: Any, **_kwargs: Any) -> nodes.Node:
        """The node in its charged form, after what it contains."""
        self.generic_visit(node)
        match node:
            case nodes.For():
                node.iter = self._call("steps", node.iter)
            case nodes.Output():
                node.nodes = [self._call("emit", child) for child in node.nodes]
            case nodes.Compare():
                node.expr = self._call("weigh", node.expr)
                for operand in node.ops:
                    operand.expr = self._call("weigh", operand.expr)
            case nodes.Concat():
                return self._call("concat_values", *node.nodes)
            case nodes.Getitem(arg=nodes.Slice()):
                return self._call("weigh", node)
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return self._call("admit", node)
        return node

    def _call(self, name: str, *args: Any) -> nodes.Expr:
        place: dict[str, Any] = {"lineno": args[0].lineno, "environment": self._environment}
        return nodes.Call(
            nodes.EnvironmentAttribute(name, **place), list(args), [], None, None, **place
        )


def _length(value: Any) -> int:
    """A value's own length in characters; what it contains is not looked at."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (dict, *_CONTAINERS)):
        return len(value) * _ELEMENT_CHARS
    return 1


def _product_chars(left: Any, right: Any) -> int:
    if isinstance(right, int):
        return _length(left) * max(right, 1) if not isinstance(left, (int, float)) else 1
    return _length(right) * max(left, 1) if isinstance(left, int) else 1


def _fits_power(left: Any, right: Any) -> None:
    both_int = isinstance(left, int) and isinstance(right, int)
    if both_int and left.bit_length() * max(right, 1) > _MAX_INT_BITS:
        raise OverLimitError("it computes a number that is too large")


def _fits_format(budget: Budget, left: str, right: Any) -> None:
    if re.search(r"%[^a-zA-Z%]*(\*|\d{4})", left):
        raise OverLimitError("it pads text by more than 999")
    each = budget.size(right, printable=True) + 1000
    budget.fits(len(left) + left.count("%") * each)
