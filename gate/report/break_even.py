"""Where the change breaks even: by acceptance, response length, traffic mix and volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.page import Table
from gate.report.reading import find_comparisons, read_number, read_path, read_text
from gate.report.wording import describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

LENGTHS = {"always": "at every length", "never": "at no length"}


def make_break_even(decision: Decision) -> Table:
    """Return what each class has beside what it needs; the mix and the volume below."""
    found = find_comparisons(decision, "device_seconds")
    whole = next((one for one in found if one.group == "all"), None)
    head = (
        "Class",
        "Step cost",
        "Tokens per step",
        "Tokens needed",
        "Drafts accepted",
        "Share needed",
        "Pays",
    )
    remark = f"{write_mix(whole)} {write_volume(whole)}".strip() if whole else NOT_MEASURED
    return Table(
        caption="Where it breaks even",
        head=head,
        rows=tuple(_write_points(one) for one in found),
        remark=remark,
    )


def _write_points(one: Comparison) -> tuple[str, ...]:
    points = read_path(one.detail, "break_even") or {}
    cost = read_path(one.detail, "step_cost_ratio")
    first = cost[0] if isinstance(cost, list | tuple) and cost else None
    return (
        describe_group(one.group),
        f"{format_number(first)} plain steps" if first is not None else NOT_MEASURED,
        format_number(read_number(one.detail, "tokens_per_step")),
        format_number(read_number(points, "tokens_per_step")),
        format_number(read_number(one.detail, "accepted_per_draft"), "share"),
        _write_share(one, points),
        _write_length(points),
    )


def _write_share(one: Comparison, points: object) -> str:
    share = read_number(points, "accepted_per_draft")
    is_known = read_number(one.detail, "accepted_per_draft") is not None
    if share is None and is_known and read_number(points, "tokens_per_step") is not None:
        return "more than all"
    return format_number(share, "share")


def _write_length(points: object) -> str:
    side, length = read_text(points, "lengths"), read_number(points, "length")
    if length is None:
        return LENGTHS.get(side, NOT_MEASURED)
    return f"{side} {format_number(length)} tokens"


def write_mix(whole: Comparison) -> str:
    """Return the traffic mix that breaks even; that no mix does where all classes agree."""
    mix = read_path(whole.detail, "break_even_mix")
    now, even = read_number(mix or {}, "share_now"), read_number(mix or {}, "share_to_break_even")
    if now is not None and even is not None:
        return (
            f"Mix: the classes that save carry {format_number(now, 'share')} of the traffic, and "
            f"with {format_number(even, 'share')} the whole would break even."
        )
    if whole.baseline is None or whole.candidate is None:
        return ""
    word = "cost more" if whole.candidate >= whole.baseline else "save"
    return f"Mix: none breaks even, for all classes {word}."


def write_volume(whole: Comparison) -> str:
    """Return the volume from which on savings cover the monthly cost; empty without a price."""
    month = read_path(whole.detail, "monthly")
    fixed = read_number(month or {}, "fixed_usd")
    if fixed is None:
        return ""
    volume = read_number(month or {}, "volume_to_break_even")
    if volume is None:
        return "Volume: none breaks even, for a request saves nothing."
    if not fixed:
        return "Volume: any, for running the change costs nothing (economics.monthly_cost_usd)."
    return (
        f"Volume: from {format_number(volume)} requests a month on, savings cover the "
        f"{format_number(fixed, 'USD')} that running the change costs."
    )
