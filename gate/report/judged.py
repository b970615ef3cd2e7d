"""Verdicts as rows: the figures in words, and the interval drawn against its margin."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gate.export.outcomes import sort_verdicts, stops_release
from gate.export.text import to_line
from gate.report.naming import describe_measure
from gate.report.numbers import (
    NOT_MEASURED,
    format_apart,
    format_difference,
    format_level,
    format_number,
    format_speedup,
)
from gate.report.page import CriterionRow, VerdictRow
from gate.report.plots import Span, Strip, choose_axis, draw_strip, is_drawable
from gate.report.reading import find_criterion, make_badge
from gate.report.remarks import list_remarks
from gate.report.wording import COUNTED, RULES, describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Criterion, Decision, Estimate, Verdict

COUNT_UNITS = frozenset({"count", "1"})  # units of the arms; their rate has the measure's
LABEL_CHARACTERS = 32
Limits = tuple[float | None, float | None]


def list_verdicts(decision: Decision) -> tuple[VerdictRow, ...]:
    """Return a row per verdict, worst first."""
    return tuple(_write_row(decision, verdict) for verdict in sort_verdicts(decision.verdicts))


def list_criteria(decision: Decision) -> tuple[CriterionRow, ...]:
    """Return all criteria written out, each with what it came to."""
    return tuple(_write_criterion(decision, criterion) for criterion in decision.criteria)


def read_unit(comparison: Comparison) -> str:
    """Return the unit of the difference."""
    unit = "" if comparison.unit in COUNT_UNITS else comparison.unit
    return unit or describe_measure(comparison.measure).unit


def is_signed(comparison: Comparison) -> bool:
    """Tell whether the statistic is a difference, where + and − mean something."""
    return not describe_measure(comparison.measure).absolute and read_unit(comparison) != "ratio"


def make_span(estimate: Estimate) -> Span:
    """Return the estimate as something to draw."""
    return Span(point=estimate.statistic, low=estimate.interval[0], high=estimate.interval[1])


def find_limits(criterion: Criterion, comparison: Comparison) -> Limits:
    """Return the lowest and highest value inside the margin."""
    margin, centre = criterion.margin, 1.0 if read_unit(comparison) == "ratio" else 0.0
    if criterion.rule == "at_most":
        return (None, margin)
    if criterion.rule == "at_least":
        return (margin, None)
    size = abs(_read_margin(criterion))
    if criterion.rule == "non_inferior" and comparison.direction == "higher_is_better":
        return (centre - size, None)
    if criterion.rule == "non_inferior" and comparison.direction == "lower_is_better":
        return (None, centre + size)
    return (centre - size, centre + size)


def write_interval(comparison: Comparison) -> str:
    """Return the interval and its confidence in words."""
    estimate = comparison.difference
    if estimate is None:
        return NOT_MEASURED
    if estimate.confidence_level >= 1:
        return "counted"
    if is_counted(comparison) and estimate.interval[1] is not None:
        most = format_number(estimate.interval[1], "share")
        return f"a rate of up to {most} ({format_level(estimate.confidence_level)} confidence)"
    write = format_difference if is_signed(comparison) else format_number
    unit = read_unit(comparison)
    low, high = (None if end is None else write(end, unit) for end in estimate.interval)
    return f"{_join_ends(low, high)} ({format_level(estimate.confidence_level)} confidence)"


def write_arms(comparison: Comparison) -> str:
    """Return both arms' own figures in words."""
    unit = describe_measure(comparison.measure).arms
    unit = read_unit(comparison) if unit is None else unit
    baseline, candidate = (
        format_number(value, unit) for value in (comparison.baseline, comparison.candidate)
    )
    return f"baseline {baseline}, candidate {candidate}"


def draw_criterion(criterion: Criterion | None, comparison: Comparison | None) -> Strip | None:
    """Return the interval against its margin; None where there is nothing to draw."""
    if criterion is None or comparison is None or comparison.difference is None:
        return None
    if is_counted(comparison):
        return _draw_count(criterion, comparison, comparison.difference)
    span = make_span(comparison.difference)
    limits = find_limits(criterion, comparison)
    ends = [end for end in limits if end is not None]
    if not is_drawable(span) or not all(math.isfinite(end) for end in ends):
        return None
    centre = 1.0 if read_unit(comparison) == "ratio" else 0.0
    axis = choose_axis([span], [*ends, centre])
    margins = _label_margins(ends, comparison)
    reference = None if centre in ends else (centre, _write_on_axis(centre, comparison))
    return draw_strip(span, axis, limits, margins, reference)


def is_counted(comparison: Comparison) -> bool:
    """Tell whether a count is held against the margin, and not an interval."""
    return comparison.unit == "count" and read_count_of(comparison) is not None


def read_count_of(comparison: Comparison) -> float | None:
    """Return the count that is judged: the baseline's where the measure is about it."""
    if comparison.measure.startswith("baseline_"):
        return comparison.baseline
    return comparison.candidate


def list_loosened(decision: Decision, criterion: str) -> tuple[str, ...]:
    """Return in what a criterion asks for less than when the baseline was approved."""
    return tuple(
        f"{one.key.replace('_', ' ')} was {one.approved}, is {one.now}"
        for one in decision.loosened
        if one.criterion == criterion
    )


def _draw_count(criterion: Criterion, comparison: Comparison, estimate: Estimate) -> Strip | None:
    """Return the count against its margin, with the rate's bound as a count of this many cases.

    The bound is of a rate, over n cases; drawn on an axis of counts it tells how many the rate
    that could still hide would make in as many cases again.
    """
    count = read_count_of(comparison) or 0.0
    high = estimate.interval[1]
    is_rate = high is not None and abs(estimate.statistic * estimate.n - count) < 0.5  # noqa: PLR2004 - rounding
    bound = high * estimate.n if is_rate and high is not None else count
    span = Span(point=count, low=count, high=max(count, bound))
    if not is_drawable(span) or not math.isfinite(criterion.margin):
        return None
    axis = choose_axis([span], [criterion.margin, 0.0])
    margins = [(criterion.margin, f"margin {format_number(criterion.margin)}")]
    reference = None if criterion.margin == 0 else (0.0, "0")
    strip = draw_strip(span, axis, find_limits(criterion, comparison), margins, reference)
    return replace(strip, counted=True)


def _label_margins(ends: list[float], comparison: Comparison) -> list[tuple[float, str]]:
    """Return the margins with their labels; the last one is also named."""
    labels = [_write_on_axis(end, comparison) for end in ends]
    if len(ends) > 1 and ends[0] == -ends[-1]:
        return [(ends[0], labels[0]), (ends[-1], f"margin ±{labels[-1].lstrip('+')}")]
    return [*zip(ends[:-1], labels, strict=False), (ends[-1], f"margin {labels[-1]}")]


def _write_row(decision: Decision, verdict: Verdict) -> VerdictRow:
    criterion, comparison = find_criterion(decision, verdict), verdict.comparison
    strip = draw_criterion(criterion, comparison)
    estimate = _write_estimate(criterion, comparison)
    rule = _write_rule(criterion, comparison)
    interval = write_interval(comparison) if comparison else NOT_MEASURED
    return VerdictRow(
        badge=make_badge(verdict.outcome),
        blocking=verdict.blocking,
        stops=stops_release(verdict),
        half=verdict.half,
        criterion=verdict.criterion,
        group=describe_group(verdict.group),
        meaning=describe_measure(comparison.measure).meaning if comparison else "",
        reason=verdict.reason,
        rule=rule,
        rationale=criterion.rationale if criterion else "",
        estimate=estimate,
        interval=interval,
        arms=write_arms(comparison) if comparison else "",
        method=_write_method(comparison),
        strip=strip,
        picture=f"Estimate {estimate}, {interval}; it {rule}.",
        caption=COUNTED if strip and strip.counted and strip.high > strip.low else "",
        remarks=list_remarks(verdict),
        loosened=list_loosened(decision, verdict.criterion),
        waived=verdict.waiver is not None,
    )


def _write_estimate(criterion: Criterion | None, comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return NOT_MEASURED
    if is_counted(comparison):
        return _write_count(comparison)
    margin = math.nan if criterion is None else _read_margin(criterion)
    text = format_apart(
        comparison.difference.statistic,
        margin,
        read_unit(comparison),
        signed=is_signed(comparison),
    )
    if comparison.measure != "time_ratio":
        return text
    speedup = format_speedup(comparison.difference.statistic)
    return f"{text} of the baseline's time ({speedup})"


def _write_count(comparison: Comparison) -> str:
    count = format_number(read_count_of(comparison))
    n = comparison.difference.n if comparison.difference else 0
    least = read_count_of(comparison) or 0
    return f"{count} of {format_number(n)}" if n >= least else count


def _write_rule(criterion: Criterion | None, comparison: Comparison | None) -> str:
    if criterion is None:
        return "has no recorded criterion"
    words = RULES.get(criterion.rule, "has the margin {margin}")
    return words.format(margin=_write_margin(criterion, comparison))


def _write_margin(criterion: Criterion, comparison: Comparison | None) -> str:
    if comparison is None:
        unit, signed = describe_measure(criterion.measure).unit, False
    else:
        unit, signed = read_unit(comparison), is_signed(comparison)
    margin = _read_margin(criterion)
    if comparison is not None and is_counted(comparison):
        return format_number(margin)
    absolute = criterion.rule in {"at_most", "at_least"}
    if signed and not absolute:
        return format_difference(abs(margin), unit).lstrip("+")
    return format_difference(margin, unit) if signed else format_number(margin, unit)


def _read_margin(criterion: Criterion) -> float:
    return max(criterion.margin, criterion.floor) if criterion.rule == "alarm" else criterion.margin


def _write_on_axis(value: float, comparison: Comparison) -> str:
    write = format_difference if is_signed(comparison) else format_number
    return to_line(write(value, read_unit(comparison)), LABEL_CHARACTERS)


def _write_method(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return ""
    estimate = comparison.difference
    pvalue = "" if estimate.pvalue is None else f", p = {format_number(estimate.pvalue)}"
    return f"{estimate.method}, n = {format_number(estimate.n)}{pvalue}"


def _join_ends(low: str | None, high: str | None) -> str:
    if low is None and high is None:
        return "unbounded"
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"between {low} and {high}"


def _write_criterion(decision: Decision, criterion: Criterion) -> CriterionRow:
    verdicts = [one for one in decision.verdicts if one.criterion == criterion.name]
    comparison = verdicts[0].comparison if verdicts else None
    came_to = [f"{one.outcome} ({describe_group(one.group)})" for one in verdicts]
    return CriterionRow(
        name=criterion.name,
        measure=describe_measure(criterion.measure).title,
        groups=describe_group(criterion.groups).replace("_", " "),
        rule=_write_rule(criterion, comparison),
        floor=format_number(criterion.floor) if criterion.floor else "none",
        level=format_level(criterion.confidence_level),
        min_pairs=format_number(criterion.min_pairs),
        blocking="yes" if criterion.blocking else "no",
        rationale=criterion.rationale,
        came_to="; ".join(came_to) or "no verdict",
        loosened=list_loosened(decision, criterion.name),
    )
