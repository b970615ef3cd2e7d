"""The evidence behind the first screen: tasks, divergence, guards, failures, the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gate.export.text import to_line
from gate.report.budget import FLIPS_BYTES, fit, share_room
from gate.report.judged import make_span, read_unit, write_interval
from gate.report.naming import describe_measure
from gate.report.numbers import NOT_MEASURED, format_difference, format_number
from gate.report.page import DeltaRow, Flip, GuardRow, Table
from gate.report.plots import Axis, choose_axis, draw_strip, is_drawable
from gate.report.reading import (
    badge_of,
    find_comparisons,
    find_verdict,
    read_items,
    read_number,
    read_path,
    read_text,
    write_value,
)
from gate.report.remarks import CERTIFICATES
from gate.report.speed import write_difference
from gate.report.wording import DIVERGENCE_LIMIT, describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

N_FLIPS = 50
LARGEST_FLIP = 4000  # bytes of one arm's text
PERCENTILES = re.compile(r"p\d+(\.\d+)?|max|mean")


def list_tasks(decision: Decision) -> tuple[DeltaRow, ...]:
    """Return a row per task, all of them on one axis, the pooled one first."""
    found = find_comparisons(decision, "task_delta")
    ordered = sorted(found, key=lambda one: one.group != "all")
    spans = [make_span(one.difference) for one in ordered if one.difference]
    drawable = [span for span in spans if is_drawable(span)]
    axis = choose_axis(drawable, [0.0]) if drawable else None
    return tuple(_write_task(decision, one, axis) for one in ordered)


def make_divergence(decision: Decision) -> Table:
    """Return the percentiles of the divergence per group."""
    found = find_comparisons(decision, "divergence")
    levels = list(dict.fromkeys(name for one in found for name in _read_percentiles(one)))
    return Table(
        caption="Divergence from the model's own law, per token",
        head=("Group", "Estimate", *levels, "Same first choice"),
        rows=tuple(_write_divergence(one, levels) for one in found),
        remark=DIVERGENCE_LIMIT if found else NOT_MEASURED,
    )


def make_defects(decision: Decision) -> Table:
    """Return the defects that the certificates of both arms list, wherever in an output."""
    found = [one for name in sorted(CERTIFICATES) for one in find_comparisons(decision, name)]
    listed = [(arm_of(one), defect) for one in found for defect in _read_dicts(one, "defects")]
    head = ("Arm", "Request", "Class", "Token", "Distance from the model's choice", "Rank")
    return Table(
        caption="Tokens that the model would not have chosen, at any place in an output",
        head=head,
        rows=tuple(_write_defect(arm, defect) for arm, defect in listed),
        remark="" if listed else ("none listed" if found else NOT_MEASURED),
    )


def arm_of(comparison: Comparison) -> str:
    """Return whose tokens a certificate counts."""
    return "baseline" if comparison.measure == "baseline_certificate" else "candidate"


def _write_defect(arm: str, defect: object) -> tuple[str, ...]:
    names = (read_text(defect, name) for name in ("request_id", "request_class", "position"))
    regret = format_number(read_number(defect, "regret"), "nats")
    return (arm, *names, regret, format_number(read_number(defect, "rank")))


def list_guards(decision: Decision) -> tuple[GuardRow, ...]:
    """Return a row per behaviour guard with the answers whose label changed."""
    found = find_comparisons(decision, "guard_flips")
    n_texts = sum(2 * min(N_FLIPS, len(_read_dicts(one, "flipped"))) for one in found)
    room = share_room(FLIPS_BYTES, n_texts, LARGEST_FLIP)
    return tuple(_write_guard(decision, one, room) for one in found)


def make_failures(decision: Decision) -> Table:
    """Return the requests that failed and the pairs that were lost, with reasons."""
    found = [
        *find_comparisons(decision, "error_rate"),
        *find_comparisons(decision, "dropped_pairs"),
    ]
    lost = [one for one in decision.comparisons if one.n_dropped and one not in found]
    return Table(
        caption="Failed requests and dropped pairs",
        head=("Measure", "Group", "Baseline", "Candidate", "Pairs dropped", "Reasons"),
        rows=tuple(_write_failure(one) for one in (*found, *lost)),
        remark="" if found or lost else NOT_MEASURED,
    )


def make_sensitivity(decision: Decision) -> Table:
    """Return what the self-test says this gate can see, under the rows' own names."""
    head = list(dict.fromkeys(str(key) for row in decision.sensitivity for key in row))
    rows = tuple(
        tuple(read_text(row, key, default=NOT_MEASURED) for key in head)
        for row in decision.sensitivity
    )
    return Table(
        caption="Seeded faults and what caught them",
        head=tuple(key.replace("_", " ") for key in head),
        rows=rows,
        remark="" if rows else NOT_MEASURED,
    )


def make_waivers(decision: Decision) -> Table:
    """Return the criteria that somebody signed away."""
    rows = tuple(
        (one.criterion, describe_group(one.group), one.who, one.until, one.reason)
        for one in decision.waivers
    )
    head = ("Criterion", "Group", "Signed by", "Until", "Reason")
    return Table(caption="Waivers", head=head, rows=rows, remark="" if rows else "none")


def make_surface(decision: Decision) -> Table:
    """Return the hashes of everything that shapes tokens."""
    rows = tuple(decision.surface.items())
    remark = "" if rows else "not recorded"
    return Table(caption="Token surface", head=("Part", "Hash"), rows=rows, remark=remark)


def make_comparisons(decision: Decision) -> Table:
    """Return every comparison of the run, judged or not."""
    return Table(
        caption="Everything that was measured",
        head=("Measure", "Group", "Baseline", "Candidate", "Difference", "n", "Method", "Note"),
        rows=tuple(_write_comparison(one) for one in decision.comparisons),
        remark="" if decision.comparisons else NOT_MEASURED,
    )


def _write_task(decision: Decision, comparison: Comparison, axis: Axis | None) -> DeltaRow:
    baseline, candidate = _write_arms(comparison)
    estimate = comparison.difference
    delta = (
        NOT_MEASURED
        if estimate is None
        else format_difference(estimate.statistic, read_unit(comparison))
    )
    interval = write_interval(comparison)
    span = make_span(estimate) if estimate else None
    drawn = span is not None and axis is not None and is_drawable(span)
    return DeltaRow(
        name="all tasks" if comparison.group == "all" else comparison.group,
        baseline=baseline,
        candidate=candidate,
        delta=delta,
        interval=interval,
        strip=draw_strip(span, axis, None, (), (0.0, "0")) if drawn and span and axis else None,
        picture=f"Change {delta}, interval {interval}; 0 is no change.",
        counts=_write_task_counts(comparison),
        detectable=comparison.detectable or "",
        badge=badge_of(find_verdict(decision, "task_delta", comparison.group)),
    )


def _write_task_counts(comparison: Comparison) -> str:
    names = (
        ("n", "documents"),
        ("discordant", "changed"),
        ("baseline_right", "right in the baseline"),
    )
    return ", ".join(f"{read_count(comparison, key)} {words}" for key, words in names)


def read_count(comparison: Comparison, key: str) -> str:
    """Return a count of the measure's detail in words."""
    return format_number(read_number(comparison.detail, key))


def _write_arms(comparison: Comparison) -> tuple[str, str]:
    measure = describe_measure(comparison.measure)
    unit = read_unit(comparison) if measure.arms is None else measure.arms
    unit = "share" if unit == "points" else unit
    return format_number(comparison.baseline, unit), format_number(comparison.candidate, unit)


def _read_percentiles(comparison: Comparison) -> dict[str, object]:
    items = (*read_items(comparison.detail, "percentiles"), *read_items(comparison.detail))
    return {name: value for name, value in items if PERCENTILES.fullmatch(name)}


def _write_divergence(comparison: Comparison, levels: Sequence[str]) -> tuple[str, ...]:
    found = _read_percentiles(comparison)
    values = (format_number(found.get(level), read_unit(comparison)) for level in levels)
    same_top = format_number(read_number(comparison.detail, "same_top"), "share")
    group = describe_group(comparison.group)
    return (group, write_difference(comparison), *values, same_top)


def _write_guard(decision: Decision, comparison: Comparison, room: int) -> GuardRow:
    flips = _read_dicts(comparison, "flipped")
    baseline, candidate = _write_arms(comparison)
    hidden = len(flips) - N_FLIPS
    return GuardRow(
        name=describe_group(comparison.group),
        baseline=baseline,
        candidate=candidate,
        difference=write_difference(comparison),
        badge=badge_of(find_verdict(decision, "guard_flips", comparison.group)),
        flips=tuple(_write_flip(one, room) for one in flips[:N_FLIPS]),
        flips_remark=f"{hidden:,} more in decision.json" if hidden > 0 else "",
    )


def _read_dicts(comparison: Comparison, key: str) -> list[object]:
    value = read_path(comparison.detail, key)
    return (
        [one for one in value if isinstance(one, Mapping)]
        if isinstance(value, list | tuple)
        else []
    )


def _write_flip(flip: object, room: int) -> Flip:
    names = ("request_id", "baseline_label", "candidate_label")
    texts = ("baseline_text", "candidate_text")
    return Flip(
        **{name: to_line(read_text(flip, name), 80) for name in names},
        **{name: fit(read_text(flip, name), room) for name in texts},
    )


def _write_failure(comparison: Comparison) -> tuple[str, ...]:
    measure = describe_measure(comparison.measure)
    dropped = format_number(comparison.n_dropped)
    reasons = write_value(comparison.drop_reasons)
    return (
        measure.title,
        describe_group(comparison.group),
        *_write_arms(comparison),
        dropped,
        reasons,
    )


def _write_comparison(comparison: Comparison) -> tuple[str, ...]:
    estimate = comparison.difference
    n = NOT_MEASURED if estimate is None else format_number(estimate.n)
    return (
        describe_measure(comparison.measure).title,
        describe_group(comparison.group),
        *_write_arms(comparison),
        write_difference(comparison),
        n,
        estimate.method if estimate else "",
        comparison.note or "",
    )
