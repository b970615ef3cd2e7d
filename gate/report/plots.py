"""Geometry of the drawings: an interval on an axis with its margin, in SVG units.

One drawing serves the criterion strips, the forest of tasks and the speed per class.
It is drawn by the template as inline SVG with classes instead of colours, so that it
follows light, dark and print; a plotting library would bring ``style`` attributes,
which the page's content policy refuses, and fixed colours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 300.0
EDGE = 14.0  # room for arrow heads and half a label
REACH = 4.0  # how far an interval may stretch the axis, in spans of what must be seen
LABEL_ROOM = 54.0
LARGEST = 1e12
Bound = float | None


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical line on the axis with its label; ``label`` empty where there is no room."""

    x: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True, kw_only=True)
class Zone:
    """The part of the axis inside the margin."""

    x: float
    width: float


@dataclass(frozen=True, kw_only=True)
class Strip:
    """An interval on an axis. ``*_open``: it goes on beyond the drawing.

    counted: the count at the point is judged; the interval is only what could still hide.
    """

    low: float
    high: float
    low_open: bool
    high_open: bool
    point: float
    allowed: Zone | None
    margins: tuple[Mark, ...]
    reference: Mark | None
    counted: bool = False


@dataclass(frozen=True, kw_only=True)
class Span:
    """An estimate to draw: its point and interval (None: unbounded on that side)."""

    point: float
    low: Bound
    high: Bound


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The stretch of values that the drawing shows."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the x of ``value``, held inside the drawing."""
        share = (value - self.low) / (self.high - self.low)
        return round(EDGE + min(1.0, max(0.0, share)) * (WIDTH - 2 * EDGE), 2)


def choose_axis(spans: Iterable[Span], anchors: Sequence[float]) -> Axis:
    """Return an axis that shows every point and anchor, and intervals as far as they help."""
    spans = tuple(spans)
    seen = [*anchors, *(span.point for span in spans)]
    ends = [end for span in spans for end in (span.low, span.high) if end is not None]
    ends = [end for end in ends if math.isfinite(end)]
    low, high = min(seen), max(seen)
    reach = REACH * (high - low) or math.inf
    low = min([low, *(max(end, low - reach) for end in ends)])
    high = max([high, *(min(end, high + reach) for end in ends)])
    pad = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
    return Axis(low=low - pad, high=high + pad)


def draw_strip(
    span: Span,
    axis: Axis,
    allowed: tuple[Bound, Bound] | None,
    margins: Sequence[tuple[float, str]] = (),
    reference: tuple[float, str] | None = None,
) -> Strip:
    """Return where everything goes. ``allowed``: the values inside the margin."""
    marks = _drop_crowded(tuple(_place_mark(axis, *margin) for margin in margins))
    return Strip(
        low=axis.place(-math.inf if span.low is None else span.low),
        high=axis.place(math.inf if span.high is None else span.high),
        low_open=_is_open(span.low, axis),
        high_open=_is_open(span.high, axis),
        point=axis.place(span.point),
        allowed=_place_zone(axis, allowed),
        margins=marks,
        reference=_place_reference(axis, reference, marks),
    )


def is_drawable(span: Span) -> bool:
    """Tell whether ``span`` has a point to draw, of a size that an axis can hold."""
    ends = [end for end in (span.low, span.high) if end is not None]
    return abs(span.point) < LARGEST and not any(math.isnan(end) for end in ends)


def _is_open(end: Bound, axis: Axis) -> bool:
    return end is None or not axis.low <= end <= axis.high


def _place_zone(axis: Axis, allowed: tuple[Bound, Bound] | None) -> Zone | None:
    if allowed is None:
        return None
    low = 0.0 if allowed[0] is None else axis.place(allowed[0])
    high = WIDTH if allowed[1] is None else axis.place(allowed[1])
    return Zone(x=low, width=round(max(high - low, 1.0), 2))


def _place_mark(axis: Axis, value: float, label: str) -> Mark:
    x = axis.place(value)
    if x < LABEL_ROOM:
        return Mark(x=x, label=label, anchor="start")
    return Mark(x=x, label=label, anchor="end" if x > WIDTH - LABEL_ROOM else "middle")


def _drop_crowded(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Return the marks without those labels that would run into the last one's."""
    return tuple(
        Mark(x=mark.x, label="", anchor=mark.anchor)
        if mark is not marks[-1] and _is_crowded(mark, marks[-1])
        else mark
        for mark in marks
    )


def _is_crowded(mark: Mark, other: Mark) -> bool:
    return abs(mark.x - other.x) < 2 * LABEL_ROOM


def _place_reference(
    axis: Axis, reference: tuple[float, str] | None, marks: tuple[Mark, ...]
) -> Mark | None:
    if reference is None:
        return None
    mark = _place_mark(axis, *reference)
    crowded = any(_is_crowded(mark, other) for other in marks)
    return Mark(x=mark.x, label="" if crowded else mark.label, anchor=mark.anchor)
