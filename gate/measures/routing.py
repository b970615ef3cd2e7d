"""Routing: which request classes go to the candidate, and what the routed whole then costs.

A class is sent to the candidate only where its interval says that it saves there, each at its
share of the error (Bonferroni over the classes): so all bounds hold at once, whichever classes
are chosen, and the blended result may be read although it was chosen by the same data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gate.measures.strata import (
    Moments,
    estimate_difference,
    estimate_ratio,
    weigh,
    weighted_means,
)
from gate.records import Comparison, Estimate, Record


class Routing(Record, frozen=True, kw_only=True):
    """Classes by where they go, and why each that stays does."""

    chosen: tuple[str, ...]
    kept: dict[str, str]


def list_losers(moments: Sequence[Moments], confidence_level: float) -> list[str]:
    """Return the classes whose whole interval says that the candidate costs more.

    Each bound at its share of the error, so that all hold at once (Bonferroni).
    """
    level = _simultaneous(moments, confidence_level)
    found = []
    for one in moments:
        if not one.baseline:
            continue
        low = estimate_ratio([one.alone], level).interval[0]
        if low is not None and low > 1.0:
            found.append(one.name)
    return found


def choose_classes(moments: Sequence[Moments], confidence_level: float = 0.95) -> Routing:
    """Return which classes pay, at ``confidence_level`` for all classes together."""
    level = _simultaneous(moments, confidence_level)
    chosen, kept = [], {}
    for one in moments:
        reason = _find_reason(one, level)
        if reason:
            kept[one.name] = reason
        else:
            chosen.append(one.name)
    return Routing(chosen=tuple(chosen), kept=kept)


def _simultaneous(moments: Sequence[Moments], confidence_level: float) -> float:
    return 1.0 - (1.0 - confidence_level) / max(1, len(moments))


def _find_reason(one: Moments, level: float) -> str:
    """Return why a class is not sent to the candidate; empty where it is."""
    if not one.baseline:
        return "the baseline's time was not measured"
    low, high = estimate_ratio([one.alone], level).interval
    if high is not None and high < 1.0:
        return ""
    ratio = one.candidate / one.baseline
    if low is not None and low > 1.0:
        return f"it costs {ratio:.2f} times as much there"
    return (
        f"{one.n} pairs do not tell, all classes judged at once ({ratio:.2f} times as much there)"
    )


def blend(
    moments: Sequence[Moments], chosen: Sequence[str], confidence_level: float = 0.95
) -> Estimate:
    """Return the routed traffic's device-seconds over the baseline's.

    Of every class chosen the candidate's mean, of every other the baseline's. Nothing routed
    is 1 by construction, everything the candidate's own ratio. The interval adds the classes'
    simultaneous bounds, so it holds for whichever classes were chosen.
    """
    weighed = weigh(moments)
    total, _ = weighted_means(weighed)
    routed = [one for one in weighed if one.name in set(chosen)]
    change = -math.fsum(one.share * one.saving for one in routed) / total
    level = _simultaneous(moments, confidence_level)
    limits = [_add_bounds(routed, level, end, total) for end in (0, 1)]
    low, high = (None if limit is None else max(0.0, 1.0 + limit) for limit in limits)
    return Estimate(
        statistic=1.0 + change,
        interval=(low, high),
        confidence_level=confidence_level,
        n=sum(one.n for one in weighed),
        method="sum of the classes' simultaneous bounds (Bonferroni), one-sided bound on each side",
    )


def _add_bounds(routed: Sequence[Moments], level: float, end: int, total: float) -> float | None:
    ends = []
    for one in routed:
        alone = [one.alone]
        limit = estimate_difference(alone, level).interval[end]
        if limit is None:
            return None
        ends.append(one.share * limit)
    return math.fsum(ends) / total


def compare_routing(
    moments: Sequence[Moments], wanted: Mapping[str, float], confidence_level: float = 0.95
) -> Comparison:
    """Return the measure routing: the traffic with only the classes routed that pay.

    wanted: class -> share of the traffic; one that was not timed stays with the baseline.
    """
    base = Comparison(measure="routing", unit="ratio", direction="lower_is_better")
    timed = {one.name for one in moments}
    untimed = [name for name, share in wanted.items() if share > 0.0 and name not in timed]
    if untimed or not moments:
        names = ", ".join(untimed) or "any class"
        return msgspec.structs.replace(base, note=f"no pair was timed in {names}")
    routing = choose_classes(moments, confidence_level)
    estimate = blend(moments, routing.chosen, confidence_level)
    everything = blend(moments, sorted(timed), confidence_level)
    baseline, _ = weighted_means(weigh(moments))
    return msgspec.structs.replace(
        base,
        baseline=baseline,
        candidate=baseline * estimate.statistic,
        difference=estimate,
        detail={
            "chosen": list(routing.chosen),
            "kept": routing.kept,
            "everything": [everything.statistic, *everything.interval],
            "level_per_class": _simultaneous(moments, confidence_level),
        },
    )
