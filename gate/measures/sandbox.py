"""The environment that evalset templates run in: no way to Python, and no way to a huge result.

jinja2's sandbox keeps templates from code. It does not keep ``{{ 'x' * 10**10 }}`` from the
memory, or two loops from the processor; what a prompt needs is less than either.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST = 1_000_000
"""Characters of a rendered template, and the largest number a template may compute with."""
REFUSED: tuple[tuple[type[nodes.Node], str], ...] = (
    (nodes.Pow, "the operator **"),
    (nodes.Macro, "a macro"),
    (nodes.CallBlock, "a call block"),
    (nodes.FilterBlock, "a filter block"),
    (nodes.Import, "an import"),
    (nodes.FromImport, "an import"),
    (nodes.Include, "an include"),
    (nodes.Extends, "an extends"),
)
NOT_OFFERED = ("namespace", "cycler", "joiner", "lipsum")
FORMATTING = frozenset({"format", "format_map"})


class BoundedTemplate(jinja2.Template):
    """Renders until MOST characters."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        """Return the text. Raises SecurityError where it would be longer than MOST."""
        pieces: list[str] = []
        size = 0
        for piece in self.generate(*args, **kwargs):
            size += len(piece)
            if size > MOST:
                msg = f"a template gives more than {MOST:,} characters"
                raise SecurityError(msg)
            pieces.append(piece)
        return "".join(pieces)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with bounds. Raises SecurityError, of one sentence, beyond them."""

    template_class = BoundedTemplate
    intercepted_binops = frozenset({"*", "+", "%"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]]) -> None:
        """``filters``: beside jinja2's own."""
        super().__init__(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        named = self.filters | dict(filters)
        self.filters = {name: _bound(f) for name, f in named.items() if name not in FORMATTING}
        for name in NOT_OFFERED:
            del self.globals[name]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _check_tree(tree)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute ``*``, ``+`` and ``%``, none of which may make a text longer than MOST."""
        if operator == "%" and isinstance(left, str):
            _refuse("formatting with %")
        if operator == "*":
            sizes = [_size(value) for value in (left, right)]
            if any(isinstance(v, str | list | tuple) for v in (left, right)):
                _check_number(sizes[0] * sizes[1])
        if operator == "+":
            _check_number(max(_size(left), 0) + max(_size(right), 0))
        result = super().call_binop(context, operator, left, right)
        _check_number(result)
        return result

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method: not one that formats, and not with a huge number."""
        if getattr(function, "__name__", "") in FORMATTING:
            _refuse("formatting")
        _check_numbers(itertools.chain(args, kwargs.values()))
        return super().call(context, function, *args, **kwargs)


def _check_tree(tree: nodes.Template) -> None:
    """Refuse what costs more than its text is long."""
    for kind, what in REFUSED:
        if tree.find(kind):
            _refuse(what)
    for loop in tree.find_all(nodes.For):
        if loop.recursive or any(loop.find_all(nodes.For)):
            _refuse("a loop inside a loop")
    for assignment in tree.find_all((nodes.Assign, nodes.AssignBlock)):
        if isinstance(assignment, nodes.AssignBlock) or assignment.find(nodes.Concat):
            _refuse("a text that is built up in a set")
    _check_numbers(node.value for node in tree.find_all(nodes.Const))


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that takes no huge number; jinja2's marks on it are kept."""

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers(itertools.chain(args, kwargs.values()))
        return function(*args, **kwargs)

    return bounded


def _size(value: Any) -> Any:
    """Return the length of a sequence, a number itself, 0 for anything else."""
    if isinstance(value, str | list | tuple):
        return len(value)
    return value if isinstance(value, int | float) else 0


def _check_numbers(values: Iterable[Any]) -> None:
    for value in values:
        _check_number(value)


def _check_number(value: Any) -> None:
    if isinstance(value, int | float) and abs(value) > MOST:
        msg = f"a template computes with {value:.6g}, and the most is {MOST:,}"
        raise SecurityError(msg)


def _refuse(what: str) -> None:
    msg = f"a template holds {what}, which no prompt needs; write the text into the documents"
    raise SecurityError(msg)
