"""The gain: speed per request class beside what was accepted there, and serving figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from gate.measures.money import scale
from gate.report.judged import is_signed, make_span, read_unit, write_interval
from gate.report.naming import describe_measure
from gate.report.numbers import NOT_MEASURED, format_difference, format_number, format_speedup
from gate.report.page import SpeedRow, Table
from gate.report.plots import Axis, Span, Strip, choose_axis, draw_strip, is_drawable
from gate.report.reading import (
    badge_of,
    find_comparisons,
    find_verdict,
    read_items,
    read_number,
    read_path,
)
from gate.report.wording import describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Decision, Estimate

SERVING = ("tokens_per_second", "ttft", "tpot")
PERCENTILES = ("time_ratio", "ttft", "tpot", "chunk_gap", "worst_gap")
COSTS = ("cost_per_request", "device_seconds")  # the first that was measured is shown
ARMS = ("baseline", "candidate")
THOUSAND = 1000.0
_WARNING = "nothing accepted: the claim does not cover this class"


def list_speed(decision: Decision) -> tuple[SpeedRow, ...]:
    """Return a row per request class with a time ratio or an acceptance rate, the mix first."""
    ratios = {one.group: one for one in find_comparisons(decision, "time_ratio")}
    acceptance = {one.group: one for one in find_comparisons(decision, "acceptance")}
    costs = find_costs(decision)
    found = dict.fromkeys((*ratios, *acceptance, *costs))
    groups = sorted(found, key=lambda group: group != "all")
    axis = _choose_axis(tuple(ratios.values()))
    return tuple(
        _write_row(
            decision, group, ratios.get(group), acceptance.get(group), costs.get(group), axis
        )
        for group in groups
    )


def write_gain(decision: Decision) -> str:
    """Return the speed on the whole mix in one sentence."""
    ratios = {one.group: one for one in find_comparisons(decision, "time_ratio")}
    whole = ratios.get("all")
    if whole is None or whole.difference is None:
        return "The speed was not measured."
    text = format_speedup(whole.difference.statistic)
    speed = f"On the whole mix the candidate was {text} ({_write_speedups(whole.difference)})."
    cost = find_costs(decision).get("all")
    return f"{speed} Cost: {_write_cost(cost)}." if cost else speed


def list_idle_classes(decision: Decision) -> tuple[str, ...]:
    """Return the request classes in which no guess was accepted."""
    idle = []
    for comparison in find_comparisons(decision, "exercised"):
        if read_path(comparison.detail, "unknown") is True:
            continue  # nobody knows what was accepted; that is said instead
        counts = read_items(comparison.detail, "by_class")
        idle += [name for name, count in counts if count == 0 and not isinstance(count, bool)]
    return tuple(dict.fromkeys(idle))


def make_serving(decision: Decision) -> Table:
    """Return throughput and latency of both arms."""
    comparisons = [one for measure in SERVING for one in find_comparisons(decision, measure)]
    return Table(
        caption="Throughput and latency",
        head=("Figure", "Group", "Baseline", "Candidate", "Difference"),
        rows=tuple(_write_serving(one) for one in comparisons),
        remark="" if comparisons else NOT_MEASURED,
    )


def make_percentiles(decision: Decision) -> Table:
    """Return the percentiles of times over requests, those alone that n carries a bound for."""
    found = [one for measure in PERCENTILES for one in find_comparisons(decision, measure)]
    rows = [row for one in found for row in _list_percentiles(one)]
    n = max((one.difference.n for one in found if one.difference), default=0)
    few = f"{n} timed requests carry no bound for any percentile" if n else NOT_MEASURED
    return Table(
        caption="Percentiles over requests",
        head=("Figure", "Group", "Percentile", "Baseline", "Candidate"),
        rows=tuple(rows),
        remark="p50 needs 5 requests, p90 29, p95 59 and p99 299." if rows else few,
    )


def _list_percentiles(one: Comparison) -> list[tuple[str, ...]]:
    title = describe_measure(one.measure).title
    if one.measure == "time_ratio":
        title = "Time per request"
    arms = [dict(read_items(read_path(one.detail, "percentiles") or {}, arm)) for arm in ARMS]
    return [
        (
            title,
            describe_group(one.group),
            name,
            *(_write_percentile(arm.get(name)) for arm in arms),
        )
        for name in dict.fromkeys((*arms[0], *arms[1]))
    ]


def _write_percentile(value: object) -> str:
    if not isinstance(value, list | tuple) or len(value) != len(("point", "low", "high")):
        return NOT_MEASURED
    point, low, high = (format_number(one, "s") for one in value)
    return f"{point}; between {low} and {high}"


def _write_row(
    decision: Decision,
    group: str,
    ratio: Comparison | None,
    acceptance: Comparison | None,
    cost: Comparison | None,
    axis: Axis | None,
) -> SpeedRow:
    estimate = ratio.difference if ratio else None
    speedup = format_speedup(estimate.statistic) if estimate else NOT_MEASURED
    interval = _write_speedups(estimate) if estimate else NOT_MEASURED
    return SpeedRow(
        name="whole mix" if group == "all" else describe_group(group),
        speedup=speedup,
        interval=interval,
        times=_write_times(ratio),
        cost=_write_cost(cost),
        strip=_draw(estimate, axis),
        picture=f"{speedup}, interval {interval}; equal speed is 1×.",
        accepted=_write_accepted(acceptance),
        share=format_number(
            read_number(acceptance and acceptance.detail, "accepted_per_draft"), "share"
        ),
        per_forward=format_number(
            read_number(acceptance and acceptance.detail, "tokens_per_forward")
        ),
        badge=badge_of(find_verdict(decision, "time_ratio", group)),
        warning=_WARNING if group in list_idle_classes(decision) else "",
    )


def _write_accepted(acceptance: Comparison | None) -> str:
    detail = acceptance.detail if acceptance else {}
    accepted, drafted = read_number(detail, "accepted"), read_number(detail, "drafted")
    if accepted is None or drafted is None:
        return NOT_MEASURED
    return f"{format_number(accepted)} of {format_number(drafted)}"


def find_costs(decision: Decision) -> dict[str, Comparison]:
    """Return what a request costs per class: in money, else in device-seconds."""
    for measure in COSTS:
        found = {one.group: one for one in find_comparisons(decision, measure) if one.difference}
        if found:
            return found
    return {}


def _write_cost(cost: Comparison | None) -> str:
    if cost is None or cost.difference is None:
        return NOT_MEASURED
    of_device = cost.measure == "device_seconds"
    shown = cost if of_device else per_thousand(cost)
    unit = describe_measure(cost.measure).arms or read_unit(cost)
    arms = " → ".join(format_number(one, unit) for one in (shown.baseline, shown.candidate))
    return f"{arms} of the device per request" if of_device else f"{arms} per 1,000 requests"


def per_thousand(money: Comparison) -> Comparison:
    """Return an amount per request as one per 1,000 requests, which can be read."""
    arms = [None if v is None else v * THOUSAND for v in (money.baseline, money.candidate)]
    change = scale(money.difference, THOUSAND) if money.difference else None
    return msgspec.structs.replace(money, baseline=arms[0], candidate=arms[1], difference=change)


def _write_times(ratio: Comparison | None) -> str:
    if ratio is None:
        return NOT_MEASURED
    baseline, candidate = (format_number(one, "s") for one in (ratio.baseline, ratio.candidate))
    return f"{baseline} → {candidate}"


def _write_speedups(estimate: Estimate) -> str:
    span = _invert(estimate)
    if span is None:
        return "no interval"
    if span.low is None and span.high is None:
        return "too few to bound"
    low = "unbounded" if span.low is None else format_number(span.low, "ratio")
    high = "unbounded" if span.high is None else format_number(span.high, "ratio")
    return f"between {low} and {high}"


def _invert(estimate: Estimate) -> Span | None:
    """Return a time ratio as a speed-up: the ends swap, and an end at 0 is unbounded."""
    if not 0 < estimate.statistic < math.inf:
        return None
    slow, fast = estimate.interval[1], estimate.interval[0]
    return Span(
        point=1 / estimate.statistic,
        low=1 / slow if slow is not None and slow > 0 else None,
        high=1 / fast if fast is not None and fast > 0 else None,
    )


def _choose_axis(ratios: tuple[Comparison, ...]) -> Axis | None:
    spans = [_invert(one.difference) for one in ratios if one.difference]
    drawable = [span for span in spans if span and is_drawable(span)]
    return choose_axis(drawable, [1.0]) if drawable else None


def _draw(estimate: Estimate | None, axis: Axis | None) -> Strip | None:
    span = _invert(estimate) if estimate else None
    if span is None or axis is None or not is_drawable(span):
        return None
    return draw_strip(span, axis, (1.0, None), (), (1.0, "1×"))


def _write_serving(comparison: Comparison) -> tuple[str, ...]:
    measure = describe_measure(comparison.measure)
    unit = comparison.unit if comparison.unit != "ratio" else measure.unit
    arms = (
        format_number(one, unit or measure.unit)
        for one in (comparison.baseline, comparison.candidate)
    )
    return (measure.title, describe_group(comparison.group), *arms, write_difference(comparison))


def write_difference(comparison: Comparison) -> str:
    """Return a difference with its interval in words."""
    if comparison.difference is None:
        return comparison.note or NOT_MEASURED
    write = format_difference if is_signed(comparison) else format_number
    statistic = write(make_span(comparison.difference).point, read_unit(comparison))
    return f"{statistic}; {write_interval(comparison)}"
