"""Costs under other prices and traffic: from a decision, or from figures by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gate.errors import UsageError
from gate.evalset import RESERVED
from gate.gain_config import EconomicsConfig
from gate.measures.money import compare_money, describe_mix, describe_month, turn_saving
from gate.measures.routing import blend, choose_classes, list_losers
from gate.measures.strata import Moments, estimate_ratio, weigh
from gate.records import Comparison, Decision, Estimate, Record

CLASS_FIGURES = 3
LEVEL = 0.95


class Costing(Record, frozen=True, kw_only=True):
    """What a decoding change costs or saves. Estimates without an interval came by hand."""

    ratio: Estimate
    money: tuple[Comparison, ...]
    losing: tuple[str, ...]
    mix: dict[str, object]
    month: dict[str, object]
    routed: tuple[str, ...]
    routed_ratio: Estimate


def read_classes(decision: Decision) -> list[Moments]:
    """Return the classes that a decision's timing measured. Raises UsageError where none was."""
    found = []
    for one in decision.comparisons:
        moments = one.detail.get("moments")
        if one.measure == "device_seconds" and one.group != "mixed" and moments:
            found.append(_convert(moments))
    if not found:
        msg = (
            f"the decision of run {decision.run_id!r} holds no device-seconds per class; "
            "run the gate with run.timing_per_class of 1 or more, or give figures with --class"
        )
        raise UsageError(msg)
    return found


def _convert(moments: object) -> Moments:
    try:
        found = msgspec.convert(moments, Moments)
    except msgspec.ValidationError as error:
        msg = f"the decision's device-seconds cannot be read ({error}); run the gate again"
        raise UsageError(msg) from error
    values = (found.share, found.baseline, found.candidate, found.var_baseline, found.cov)
    if not all(map(math.isfinite, values)) or found.n < 1 or min(values[:3]) < 0.0:
        msg = f"the decision's device-seconds of {found.name!r} cannot be true; run the gate again"
        raise UsageError(msg)
    return found


def parse_class(text: str) -> Moments:
    """Return a class from ``NAME=SHARE,BEFORE_S,AFTER_S``. Raises UsageError."""
    name, _, figures = text.partition("=")
    numbers = [_parse_number("--class", text, part) for part in figures.split(",")]
    if not name or len(numbers) != CLASS_FIGURES or min(numbers) < 0.0 or not numbers[1] > 0.0:
        msg = (
            f"--class {text!r}: write NAME=SHARE,BEFORE,AFTER with the share of the traffic and "
            "device-seconds per request above 0, for instance code=0.7,1.9,1.1"
        )
        raise UsageError(msg)
    if name in RESERVED:
        msg = f"--class {text!r}: {name!r} stands for something else here; name the class otherwise"
        raise UsageError(msg)
    share, before, after = numbers
    return Moments(name=name, share=share, n=1, baseline=before, candidate=after)


def parse_traffic(text: str) -> dict[str, float]:
    """Return shares from ``NAME=SHARE,...``. Raises UsageError."""
    shares = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        if name.strip() in shares:
            msg = f"--traffic {text!r}: {name.strip()!r} comes twice; give each class one share"
            raise UsageError(msg)
        shares[name.strip()] = _parse_number("--traffic", text, share)
    return shares


def _parse_number(option: str, text: str, part: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        msg = f"{option} {text!r}: {part.strip()!r} is no number; write for instance code=0.7"
        raise UsageError(msg)
    return value


def apply_traffic(classes: Sequence[Moments], traffic: Mapping[str, float]) -> list[Moments]:
    """Return the classes with other shares. Raises UsageError where names or sum do not fit."""
    shares = dict(traffic) or {one.name: one.share for one in classes}
    names = [one.name for one in classes]
    total = math.fsum(shares.values())
    if sorted(shares) != sorted(names) or min(shares.values()) < 0.0:
        msg = f"the traffic names {', '.join(shares)}; give each of {', '.join(names)} a share once"
        raise UsageError(msg)
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        msg = f"the traffic shares sum to {total:.6g}; make them sum to 1"
        raise UsageError(msg)
    return [msgspec.structs.replace(one, share=shares[one.name]) for one in classes]


def compute_costs(classes: Sequence[Moments], config: EconomicsConfig) -> Costing:
    """Return costs of classes whose shares sum to 1. By hand (one pair each): no interval."""
    weighed = weigh([one for one in classes if one.share > 0.0])
    by_hand = all(one.n == 1 for one in weighed)
    losing = (
        [one.name for one in weighed if one.saving < 0.0]
        if by_hand
        else list_losers(weighed, LEVEL)
    )
    routed = (
        [one.name for one in weighed if one.saving > 0.0]
        if by_hand
        else list(choose_classes(weighed, LEVEL).chosen)
    )
    return Costing(
        ratio=estimate_ratio(weighed, LEVEL),
        money=tuple(compare_money(weighed, weighed, config, "", LEVEL)),
        losing=tuple(losing),
        mix=describe_mix(weighed),
        month=describe_month(weighed, config, LEVEL),
        routed=tuple(routed),
        routed_ratio=blend(weighed, routed, LEVEL),
    )


def describe(costing: Costing) -> list[str]:
    """Return the costing in lines."""
    lines = [f"device-seconds: {_write(costing.ratio)} of the baseline's over this traffic"]
    for one in costing.money:
        if one.difference is not None:
            figure = one.measure.replace("_", " ")
            lines.append(
                f"{figure}, {one.group}: {one.baseline:.4g} -> {one.candidate:.4g} USD, "
                f"change {_write(one.difference)}"
            )
    lines.append(f"costs more under the candidate: {', '.join(costing.losing) or 'none'}")
    even = costing.mix.get("share_to_break_even")
    if isinstance(even, float):
        lines.append(f"breaks even where the classes that save carry {even:.1%} of the traffic")
    saving: Any = costing.month.get("saving_usd")
    if saving:
        lines.append(_write_month(saving))
    lines.append(
        f"route {', '.join(costing.routed) or 'nothing'} to the candidate: "
        f"{_write(costing.routed_ratio)} of the baseline's device-seconds"
    )
    return lines


def _write_month(saving: Sequence[float | None]) -> str:
    """A month's saving; a negative one is what the change costs."""
    loses, (point, *ends) = turn_saving(saving)
    amount = f"costs {point or 0.0:.4g} USD more" if loses else f"saves {point or 0.0:.4g} USD"
    return f"{amount} a month ({_write_ends(ends)})"


def _write(estimate: Estimate) -> str:
    return f"{estimate.statistic:.4g} ({_write_ends(estimate.interval)})"


def _write_ends(ends: Sequence[float | None]) -> str:
    low, high = ends
    if low is None and high is None:
        return "no interval"
    return " to ".join("unbounded" if end is None else f"{end:.4g}" for end in (low, high))
