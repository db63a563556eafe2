"""Where in a chat template something is: the row and the column, which jinja2 does not keep.

jinja2 carries a line number from the lexer into every node and every error. Here that number is a
`Place`, which knows its column too. While a template runs, `Tracker` learns which expression is
being worked out, since Python's traceback knows lines only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateSyntaxError, nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import Environment

_NEWLINE = re.compile(r"\r\n|\r|\n")

FILE_NAME = "<template>"
"""What jinja2 writes in tracebacks for a template without a file."""


class Place(int):
    """A line that knows its column; both count from 1."""

    column: int

    def __new__(cls, line: int, column: int) -> Place:
        """A number that jinja2 takes for the line."""
        place = super().__new__(cls, line)
        place.column = column
        return place


def placed(
    source: str, tokens: Iterable[tuple[int, str, str]]
) -> Iterator[tuple[Place, str, str]]:  # fmt: skip
    """The lexer's tokens of `source` with places for lines; its errors get one too."""
    text = _NEWLINE.sub("\n", source)
    at = 0
    try:
        for line, kind, value in tokens:
            # What lies between two tokens is white space that the lexer took away.
            at = max(at, text.find(value, at))
            yield _place(text, line, at), kind, value
            at += len(value)
    except TemplateSyntaxError as error:
        if not isinstance(error.lineno, Place):
            error.lineno = _place(text, error.lineno, at)
        raise


def _place(text: str, line: int, at: int) -> Place:
    return Place(line, at - text.rfind("\n", 0, at))


class _Mark(NamedTuple):
    """An expression, and the line that a traceback names for the statement it is part of."""

    statement_line: int
    place: Place


class Tracker:
    """The marked expressions of a template, and which of them was begun last."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []
        self._begun: int | None = None

    def add(self, statement_line: int, place: Place) -> int:
        """The number of one more expression."""
        self._marks.append(_Mark(int(statement_line), place))
        return len(self._marks) - 1

    def begin(self, i_mark: int) -> bool:
        """Tell that an expression is being worked out; always true."""
        self._begun = i_mark
        return True

    def fault_place(self, error: BaseException) -> Place | None:
        """Where a template went wrong; None when it was not in the template."""
        if isinstance(error, TemplateSyntaxError):
            return _with_column(error.lineno)
        line = _traceback_line(error)
        if line is None:
            return None
        begun = [] if self._begun is None else [self._marks[self._begun]]
        on_line = (mark.place for mark in (*begun, *self._marks) if mark.statement_line == line)
        return next(on_line, Place(line, 1))


def _with_column(line: int) -> Place:
    return line if isinstance(line, Place) else Place(line, 1)


def _traceback_line(error: BaseException) -> int | None:
    """The innermost line of the template that the error passed through."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        # jinja2 rewrites the traceback: its frames carry the template's own lines.
        if traceback.tb_frame.f_code.co_filename == FILE_NAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


class Marker:
    """Rewrites a parsed template so that a tracker learns of every expression that is begun.

    Marked are what statements work out and the operands in it. `method` is the name of the
    environment's method that is called with the number of a mark.
    """

    def __init__(self, environment: Environment, tracker: Tracker, method: str) -> None:
        self._environment = environment
        self._tracker = tracker
        self._method = method
        self._statement_line = 1

    def visit(self, node: nodes.Node, *_args: Any, **_kwargs: Any) -> nodes.Node:
        """The node with its expressions marked."""
        match node:
            case nodes.Output():
                node.nodes = [self._statement(child, child.lineno) for child in node.nodes]
                return node
            case nodes.For():
                node.iter = self._statement(node.iter, node.lineno)
                return self._visit_rest(node, "iter")
            case nodes.If():
                node.test = self._statement(node.test, node.lineno)
                return self._visit_rest(node, "test")
            case nodes.Assign():
                node.node = self._statement(node.node, node.lineno)
                return node
            case nodes.Concat():
                node.nodes = [self._operand(child) for child in node.nodes]
                return node
            case nodes.BinExpr():
                node.left, node.right = self._operand(node.left), self._operand(node.right)
                return node
        return self._visit_rest(node)

    def _visit_rest(self, node: nodes.Node, *done: str) -> nodes.Node:
        for name, value in node.iter_fields(exclude=done):
            if isinstance(value, nodes.Node):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list):
                items = [self.visit(v) if isinstance(v, nodes.Node) else v for v in value]
                setattr(node, name, items)
        return node

    def _statement(self, node: nodes.Node, line: int) -> nodes.Expr:
        self._statement_line = line
        if isinstance(node, nodes.TemplateData | nodes.Const):
            return node
        return self._operand(node)

    def _operand(self, node: nodes.Node) -> nodes.Expr:
        place = _start(node)
        expression: Any = self.visit(node)
        return self._marked(expression, place)

    def _marked(self, node: nodes.Expr, place: Place) -> nodes.Expr:
        """`node if begin(number) else None`: Python works out the condition first."""
        where: dict[str, Any] = {"lineno": place, "environment": self._environment}
        i_mark = self._tracker.add(self._statement_line, place)
        begin = nodes.Call(
            nodes.EnvironmentAttribute(self._method, **where),
            *([nodes.Const(i_mark, **where)], [], None, None),
            **where,
        )
        return nodes.CondExpr(begin, node, nodes.Const(None, **where), **where)


def _start(node: nodes.Node) -> Place:
    """Where an expression begins; jinja2 gives some the place of their last sign."""
    inner: Any = node
    of_another = nodes.Getattr | nodes.Getitem | nodes.Call | nodes.Filter | nodes.Test
    while isinstance(inner, of_another) and isinstance(inner.node, nodes.Node):
        inner = inner.node
    return _with_column(inner.lineno)
