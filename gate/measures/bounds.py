"""Intervals as criteria read them: a one-sided bound of the stated level on each side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from gate.measures.power import detectable_one_way_flips, smallest_mcnemar_pvalue
from gate.measures.stats import paired_binary_difference
from gate.records import Estimate

POWER = 0.8


def bound_each_side(compute: Callable[[float], Estimate], confidence_level: float) -> Estimate:
    """Return ``compute``'s two-sided interval as two one-sided bounds of ``confidence_level``.

    compute: two-sided level -> Estimate. Level c on each side is a two-sided 2c - 1; a rule
    with a margin reads one of the bounds. ValueError unless 0.5 < confidence_level < 1.
    """
    if not 0.5 < confidence_level < 1.0:  # noqa: PLR2004 - below, the bounds would cross
        msg = f"confidence_level is {confidence_level}; a bound's lies between 0.5 and 1"
        raise ValueError(msg)
    estimate = compute(2.0 * confidence_level - 1.0)
    return msgspec.structs.replace(
        estimate,
        confidence_level=confidence_level,
        method=estimate.method.replace("two-sided interval", "one-sided bound on each side"),
    )


def compare_flags(
    baseline: Sequence[bool], candidate: Sequence[bool], confidence_level: float
) -> Estimate:
    """Return the candidate's share of flags minus the baseline's, exact McNemar p included."""
    before, after = [float(flag) for flag in baseline], [float(flag) for flag in candidate]
    return bound_each_side(
        lambda level: paired_binary_difference(before, after, level), confidence_level
    )


def describe_power(n: int, confidence_level: float) -> str:
    """Return in words which one-way change ``n`` pairs can show at the two-sided level."""
    return describe_alarm_power(n, 2.0 * (1.0 - confidence_level), 0.0)


def describe_alarm_power(n: int, alpha: float, floor: float) -> str:
    """Return in words which one-way change of ``n`` pairs reaches ``alpha`` and exceeds a floor."""
    rate = detectable_one_way_flips(n, alpha, POWER, floor) if n else None
    if rate is None:
        return f"no change, however large: {n} pairs are too few"
    share = math.ceil(rate * 1000) / 10
    return f"a change on {share:g}% of the {n} pairs or more (power {POWER:.0%})"


def read_smallest_pvalue(n: int) -> float:
    """Return the least p-value that exact McNemar can give on ``n`` pairs."""
    return float(smallest_mcnemar_pvalue(n))
