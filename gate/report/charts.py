"""Curves and distributions as inline SVG, drawn by pygal.

pygal names everything by class and writes no ``style`` attribute, so the page's own style
sheet gives the colours, in light, dark and print, and its content policy holds. What else pygal
brings (its own style, script, comments and hover texts) is taken out of the tree.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, tostring

import pygal
from markupsafe import Markup

from gate.export.text import to_line

# pygal looks for plug-ins of its own by an import hook of an old kind, which pytest trips over.
sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, pygal.PluginImportFixer)]

WIDTH, HEIGHT = 520, 240
LEAST, LARGEST = 1e-300, 1e15
MANY = 30  # points that a line is drawn with dots for
DROPPED = frozenset({"defs", "title", "desc"})
NAME_CHARACTERS = 60
_DIGITS = re.compile(r"(\.\d)\d+")
Point = tuple[float, float]
Format = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A named row of points (x, y), in order of x."""

    name: str
    points: tuple[Point, ...]


def draw_lines(
    lines: Sequence[Line],
    *,
    words: str,
    x_title: str,
    y_title: str,
    write_x: Format,
    write_y: Format,
    is_logarithmic: bool = False,
    x_labels: Sequence[float] | None = None,
) -> Markup | None:
    """Return the lines as one SVG with the text alternative ``words``; None: nothing to draw.

    is_logarithmic: of y; points at or below 0 are left out. x_labels: where the axis is labelled.
    """
    kept = [(line.name, _keep(line.points, is_logarithmic)) for line in lines]
    longest = max((len(points) for _, points in kept), default=0)
    if not longest:
        return None
    chart = pygal.XY(
        width=WIDTH,
        height=HEIGHT,
        js=[],
        css=[],
        show_legend=False,
        no_prefix=True,
        margin=8,
        max_scale=6,
        min_scale=2,
        dots_size=2,
        show_dots=longest <= MANY,
        x_labels=None if x_labels is None else list(x_labels),
        range=_choose_range([y for _, points in kept for _, y in points]),
        x_title=x_title,
        y_title=y_title,
        x_value_formatter=write_x,
        value_formatter=(lambda y: write_y(10**y)) if is_logarithmic else write_y,
    )
    for name, points in kept:
        chart.add(to_line(name, NAME_CHARACTERS), points)
    return _serialise(chart.render_tree(), words)


def _keep(points: Iterable[Point], is_logarithmic: bool) -> list[Point]:  # noqa: FBT001
    """Return the points that an axis can hold, y as its logarithm where asked."""
    least = LEAST if is_logarithmic else -LARGEST
    held = [(x, y) for x, y in points if abs(x) < LARGEST and least <= y < LARGEST]
    return [(x, math.log10(y)) for x, y in held] if is_logarithmic else held


def _choose_range(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an axis for values that are all the same, which have no range of their own."""
    low, high = min(values), max(values)
    pad = abs(low) / 10 or 1.0
    return (low - pad, high + pad) if low == high else None


def _serialise(root: Element, words: str) -> Markup:
    _strip(root)
    root.attrib.clear()
    root.set("class", "chart")
    root.set("viewBox", f"0 0 {WIDTH} {HEIGHT}")
    root.set("role", "img")
    root.set("aria-label", to_line(words, 600))
    drawn = _DIGITS.sub(r"\1", tostring(root, encoding="unicode"))
    return Markup(drawn)  # noqa: S704 - serialised, so escaped


def _strip(element: Any) -> None:
    """Take out what is not drawn, at every depth."""
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag in DROPPED or _is_tooltip(child):
            element.remove(child)
        else:
            _strip(child)


def _is_tooltip(element: Any) -> bool:
    """Tell a hover text: it needs pygal's script, and a style attribute that the policy refuses."""
    return "tooltip" in element.get("class", "").split()
