"""What the change earns: device-seconds, money, batch sizes, the device, and where to route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gate.measures.money import turn_saving
from gate.report.break_even import make_break_even
from gate.report.naming import describe_measure
from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.page import Table
from gate.report.reading import find_comparisons, read_items, read_number, read_path, read_text
from gate.report.speed import per_thousand, write_difference
from gate.report.wording import describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

MONEY = ("cost_per_request", "margin_per_request")
PARTS = ("run_s", "served_s", "failed_s", "unattributed_s", "method")
SERVED = ("goodput", "serving_errors", "serving_timeouts", "chunk_gap", "worst_gap",
          "latency", "peak_memory", "entropy")  # fmt: skip

FIGURES = {
    "copy_bytes_per_s": ("ceiling: bytes copied a second", "bytes"),
    "matmul_flops_per_s": ("ceiling: operations a second of a matrix product", "operations"),
    "weight_bytes": ("weights", "bytes"),
    "cache_bytes_per_token": ("cache of a token", "bytes"),
    "free_bytes": ("memory that is free", "bytes"),
    "cache_headroom_tokens": ("cache that the free memory holds", "tokens"),
    "prefill_s": ("reading a prompt", "s"),
    "prefill_tokens": ("tokens of that prompt", "tokens"),
    "prefill_matmul_share": ("share of the matrix ceiling there", "share"),
}
"""Figures of the device, as a reader says them, with their units."""


def list_earnings(decision: Decision) -> tuple[Table, ...]:
    """Return the tables of the economics section."""
    return (
        make_device_seconds(decision),
        make_break_even(decision),
        make_money(decision),
        make_routing(decision),
        make_sweep(decision),
        make_profile(decision),
        make_parts(decision),
        make_served(decision),
    )


def make_device_seconds(decision: Decision) -> Table:
    """Return device-seconds per request and class, and what rows that emit nothing took of it."""
    found = find_comparisons(decision, "device_seconds")
    whole = next((one for one in found if one.group == "all"), None)
    head = ("Class", "Traffic", "Baseline", "Candidate", "Ratio", "Wasted")
    return Table(
        caption="Device-seconds per request",
        head=head,
        rows=tuple(_write_seconds(one) for one in found),
        remark=_write_hidden(whole) if found else NOT_MEASURED,
    )


def _write_seconds(one: Comparison) -> tuple[str, ...]:
    detail = one.detail
    return (
        describe_group(one.group),
        format_number(1.0 if one.group == "all" else read_number(detail, "traffic_share"), "share"),
        format_number(one.baseline, "s"),
        format_number(one.candidate, "s"),
        write_difference(one),
        format_number(read_number(detail, "wasted_share"), "share"),
    )


def _write_hidden(whole: Comparison | None) -> str:
    detail = whole.detail if whole else {}
    losing, hidden = (_list_names(detail, key) for key in ("losing_classes", "hidden_by_blend"))
    text = f"Proven to cost more, all classes judged at once: {losing or 'none'}."
    text += " Wasted: of the candidate's decode time, on rows that emit nothing."
    if hidden:
        text += f" The blend hides it: {hidden}."
    return text


def _list_names(detail: object, key: str) -> str:
    names = read_path(detail, key)
    return ", ".join(str(one) for one in names) if isinstance(names, list | tuple) else ""


def make_money(decision: Decision) -> Table:
    """Return cost and contribution margin per request, and the month at the stated volume."""
    found = [one for name in MONEY for one in find_comparisons(decision, name)]
    return Table(
        caption="Money per 1,000 requests",
        head=("Figure", "Class", "Baseline", "Candidate", "Change"),
        rows=tuple(_write_money(one) for one in found),
        remark=_write_month(decision) if found else NOT_MEASURED,
    )


def _write_money(one: Comparison) -> tuple[str, ...]:
    shown = per_thousand(one)
    arms = (format_number(value, "USD") for value in (shown.baseline, shown.candidate))
    title = describe_measure(one.measure).title.removesuffix(" per request")
    return (title, describe_group(one.group), *arms, write_difference(shown))


def _write_month(decision: Decision) -> str:
    whole = [one for one in find_comparisons(decision, "device_seconds") if one.group == "all"]
    month = read_path(whole[0].detail, "monthly") if whole else None
    saving = read_path(month, "saving_usd") if month else None
    if not isinstance(saving, list | tuple) or len(saving) != len(("point", "low", "high")):
        return "Set economics.requests_per_month for the month's saving."
    numbers = [v if isinstance(v, int | float) else None for v in saving]
    loses, amounts = turn_saving(numbers)
    point, low, high = (format_number(v, "USD") for v in amounts)
    volume = format_number(read_number(month, "requests_per_month"))
    word, more = ("costs", " more") if loses else ("saves", "")
    return (
        f"At {volume} requests a month the change {word} {point}{more} (between {low} and {high}), "
        "running it included."
    )


def make_routing(decision: Decision) -> Table:
    """Return where each class should go, and why."""
    found = find_comparisons(decision, "routing")
    rows: list[tuple[str, ...]] = []
    for one in found:
        chosen = read_path(one.detail, "chosen")
        names = chosen if isinstance(chosen, list | tuple) else ()
        rows += [(str(name), "candidate", "its interval says that it saves") for name in names]
        rows += [(name, "baseline", str(why)) for name, why in read_items(one.detail, "kept")]
    remark = _write_routed(found[0]) if found else NOT_MEASURED
    return Table(
        caption="Where to route",
        head=("Class", "Goes to", "Why"),
        rows=tuple(rows),
        remark=remark,
    )


def _write_routed(routing: Comparison) -> str:
    if routing.difference is not None and not read_path(routing.detail, "chosen"):
        return "Nothing is routed: no class's interval says that it saves."
    return f"The routed traffic: {write_difference(routing)}."


def make_sweep(decision: Decision) -> Table:
    """Return the ratio per batch size, and where it crosses 1."""
    found = find_comparisons(decision, "sweep")
    crossover = find_comparisons(decision, "crossover_batch")
    remark = f"Crossover batch: {write_difference(crossover[0])}." if crossover else NOT_MEASURED
    rows = tuple(
        (one.group, format_number(one.baseline, "s"), format_number(one.candidate, "s"),
         write_difference(one))
        for one in found
    )  # fmt: skip
    head = ("Batch", "Baseline", "Candidate", "Ratio")
    return Table(caption="More requests at once", head=head, rows=rows, remark=remark)


def make_profile(decision: Decision) -> Table:
    """Return what binds on this device, and the cost of a step by rows."""
    found = find_comparisons(decision, "profile")
    rows: list[tuple[str, ...]] = [(describe_group(one.group), one.note or "") for one in found]
    whole = next((one for one in found if one.group == "all"), None)
    figures = read_path(whole.detail, "figures") if whole else None
    rows += [_write_figure(name, value, figures) for name, value in _items(figures)]
    rows += _list_curve(whole)
    head = ("What", "Found")
    remark = "" if found else NOT_MEASURED
    return Table(caption="What binds", head=head, rows=tuple(rows), remark=remark)


def _write_figure(name: str, value: object, figures: object) -> tuple[str, str]:
    title, unit = FIGURES.get(name, (f"device: {name}", ""))
    return title, format_number(value, unit) if unit else read_text(figures or {}, name)


def _items(value: object) -> Sequence[tuple[str, object]]:
    return read_items(value) if isinstance(value, dict) else ()


def _list_curve(whole: Comparison | None) -> list[tuple[str, ...]]:
    curve = read_path(whole.detail, "curve") if whole else None
    rows: list[tuple[str, ...]] = []
    for point in curve if isinstance(curve, list | tuple) else ():
        if not isinstance(point, list | tuple) or len(point) != 6:  # noqa: PLR2004 - as profiling.list_curve writes it
            continue
        batch, width, wall, cost, copied, matmul = point
        found = (
            f"{format_number(wall, 's')}, {format_number(cost)} plain steps; "
            f"{format_number(copied, 'share')} of the copy ceiling, "
            f"{format_number(matmul, 'share')} of the matmul ceiling"
        )
        rows.append((f"step: batch {batch}, rows of each request: {width}", found))
    return rows


def make_parts(decision: Decision) -> Table:
    """Return where the timing blocks' seconds went: the parts add up to the run."""
    rows: list[tuple[str, ...]] = []
    for one in find_comparisons(decision, "device_seconds"):
        for arm in ("baseline", "candidate"):
            parts = read_path(one.detail, "conservation", arm)
            if isinstance(parts, dict):
                values = [
                    str(parts.get(name, "")) if name == "method"
                    else format_number(read_number(parts, name), "s")
                    for name in PARTS
                ]  # fmt: skip
                problems = ", ".join(f"{why} ({n})" for why, n in read_items(parts, "problems"))
                rows.append((describe_group(one.group), arm, *values, problems))
    head = ("Blocks", "Arm", "Took", "Answered requests", "Failed requests", "Unattributed",
            "Attributed by", "Not usable")  # fmt: skip
    remark = "" if rows else NOT_MEASURED
    return Table(caption="Where the seconds went", head=head, rows=tuple(rows), remark=remark)


def make_served(decision: Decision) -> Table:
    """Return the other serving figures."""
    found = [one for name in SERVED for one in find_comparisons(decision, name)]
    return Table(
        caption="What users notice",
        head=("Figure", "Group", "Baseline", "Candidate", "Difference"),
        rows=tuple(_write_served(one) for one in found),
        remark="" if found else NOT_MEASURED,
    )


def _write_served(one: Comparison) -> tuple[str, ...]:
    measure = describe_measure(one.measure)
    unit = measure.arms or (measure.unit if one.unit == "ratio" else one.unit)
    arms = (format_number(value, unit) for value in (one.baseline, one.candidate))
    return (measure.title, describe_group(one.group), *arms, write_difference(one))
