"""Money: what requests cost and earn, and what a month at a stated volume comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gate.gain_config import EconomicsConfig
from gate.measures import breakeven
from gate.measures.strata import Moments, estimate_difference, weigh, weighted_means
from gate.records import Comparison, Estimate

NO_PRICE = "no price: set economics.device_hour_usd"


def compare_money(
    usable: Sequence[Moments],
    singles: Sequence[Moments],
    config: EconomicsConfig,
    missing: str,
    confidence_level: float,
) -> list[Comparison]:
    """Return cost_per_request and margin_per_request, of the traffic and per class.

    usable: all classes with traffic, or none where one was not timed (``missing`` says which).
    """
    price = config.device_second_usd
    cost = Comparison(measure="cost_per_request", unit="USD", direction="lower_is_better")
    if price is None:
        return [msgspec.structs.replace(cost, note=NO_PRICE)]
    groups = [("all", list(usable)), *((one.name, [one.alone]) for one in singles)]
    found = []
    for group, moments in groups:
        if not moments:
            found.append(msgspec.structs.replace(cost, group=group, note=missing))
            continue
        found.append(_price(cost, group, moments, price, confidence_level))
        margin = _earn(found[-1], moments, config)
        found += [margin] if margin else []
    return found


def _price(
    cost: Comparison,
    group: str,
    moments: Sequence[Moments],
    price: float,
    confidence_level: float,
) -> Comparison:
    baseline, candidate = weighted_means(weigh(moments))
    seconds = estimate_difference(moments, confidence_level)
    return msgspec.structs.replace(
        cost,
        group=group,
        baseline=baseline * price,
        candidate=candidate * price,
        difference=scale(seconds, price),
    )


def turn_saving(saving: Sequence[float | None]) -> tuple[bool, list[float | None]]:
    """Return whether a saving (point, low, high) is a loss, and its amount, the ends in order."""
    point, low, high = saving
    if point is None or point >= 0.0:
        return False, [point, low, high]
    return True, [-point, None if high is None else -high, None if low is None else -low]


def scale(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate in another unit; a negative factor turns it round."""
    ends = [None if end is None else end * factor for end in estimate.interval]
    low, high = ends if factor >= 0 else ends[::-1]
    return msgspec.structs.replace(
        estimate, statistic=estimate.statistic * factor, interval=(low, high)
    )


def _earn(
    cost: Comparison, moments: Sequence[Moments], config: EconomicsConfig
) -> Comparison | None:
    """Return the contribution margin, where every class of the group has a revenue."""
    revenues = [(one.share, config.read_revenue(one.name)) for one in weigh(moments)]
    if any(revenue is None for _, revenue in revenues):
        return None
    revenue = math.fsum(share * (value or 0.0) for share, value in revenues)
    return msgspec.structs.replace(
        cost,
        measure="margin_per_request",
        direction="higher_is_better",
        baseline=revenue - (cost.baseline or 0.0),
        candidate=revenue - (cost.candidate or 0.0),
        difference=scale(cost.difference, -1.0) if cost.difference else None,
        detail={"revenue_usd": revenue},
    )


def describe_mix(moments: Sequence[Moments]) -> dict[str, object]:
    """Return the share of the traffic that winning classes need, as a block, to break even."""
    winners = [one for one in moments if one.saving > 0.0 and one.share > 0.0]
    losers = [one for one in moments if one.saving <= 0.0 and one.share > 0.0]
    if not winners or not losers:
        return {}
    savings = [math.fsum(m.share * m.saving for m in weigh(side)) for side in (winners, losers)]
    return {
        "winners": [one.name for one in winners],
        "share_now": math.fsum(m.share for m in winners) / math.fsum(m.share for m in moments),
        "share_to_break_even": breakeven.find_mix(*savings),
    }


def describe_month(
    moments: Sequence[Moments], config: EconomicsConfig, confidence_level: float
) -> dict[str, object]:
    """Return the saving per month at the stated volume, USD, and the volume that breaks even."""
    price = config.device_second_usd
    if price is None:
        return {}
    saving = scale(estimate_difference(moments, confidence_level), -price)
    volume = config.requests_per_month
    found: dict[str, object] = {
        "saving_per_request_usd": [saving.statistic, *saving.interval],
        "fixed_usd": config.monthly_cost_usd,
        "volume_to_break_even": breakeven.find_volume(config.monthly_cost_usd, saving.statistic),
    }
    if volume is None:
        return found
    total = scale(saving, volume)
    ends = [total.statistic, *total.interval]
    net = [None if end is None else end - config.monthly_cost_usd for end in ends]
    return found | {"requests_per_month": volume, "saving_usd": net}
