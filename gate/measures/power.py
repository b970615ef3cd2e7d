"""What a number of items can show: required n and detectable effects.

A result of None means that no n, or no effect, of the kind asked for would do.
Levels are per side, as in ``stats.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize
from scipy import stats as dist

from gate.measures.stats import Side, tail_probability

if TYPE_CHECKING:
    from gate.records import Estimate

_MAX_N = 10**9
_LEAST_N = 2  # a spread takes two items


def required_n_zero_flips(margin: float, confidence_level: float = 0.95) -> int:
    """Return how many items without a flip put the one-sided exact upper bound under ``margin``.

    Smallest n with (1 - margin)^n <= 1 - confidence_level.
    """
    _check_share(margin, "margin")
    tail = tail_probability(confidence_level, "upper")
    return max(1, math.ceil(math.log(tail) / math.log1p(-margin) - 1e-9))


def required_n_percentile(q: float, confidence_level: float = 0.95, side: Side = "upper") -> int:
    """Return the smallest n at which the q-quantile has its order-statistic bounds.

    0.99 with a one-sided upper 95% bound: 299.
    """
    _check_share(q, "q")
    log_tail = math.log(tail_probability(confidence_level, side))
    n_upper = log_tail / math.log(q) if side != "lower" else 1.0
    n_lower = log_tail / math.log1p(-q) if side != "upper" else 1.0
    return math.ceil(max(n_upper, n_lower) - 1e-9)


def required_n_for_interval(
    std_dev: float, half_width: float, confidence_level: float = 0.95, side: Side = "two-sided"
) -> int:
    """Return the smallest n >= 2 whose t interval of a mean reaches at most ``half_width``.

    std_dev: of the differences, in the unit of half_width; for independent items.
    """
    if std_dev < 0.0 or half_width <= 0.0:
        msg = f"std_dev {std_dev} must be at least 0 and half_width {half_width} above 0"
        raise ValueError(msg)
    tail = tail_probability(confidence_level, side)

    def is_wide(n: int) -> bool:
        return float(dist.t.isf(tail, n - 1)) * std_dev / math.sqrt(n) > half_width

    low, high = 1, 2
    while is_wide(high) and high < _MAX_N:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_wide(middle) else (low, middle)
    return high


def required_n_to_decide(estimate: Estimate, margin: float) -> int | None:
    """Return the n at which the bound would clear ``margin`` if the statistic stayed as it is.

    The reach of the bound beyond the margin shrinks as 1/sqrt(n). Where nothing flipped it
    shrinks as 1/n, and ``required_n_zero_flips`` is the better answer. None: the statistic
    lies on the margin, or there is no bound to extrapolate. n itself: it is decided.
    """
    low, high = estimate.interval
    bound = high if estimate.statistic < margin else low
    room = abs(margin - estimate.statistic)
    if bound is None or room == 0.0:
        return None
    reach = abs(bound - estimate.statistic)
    return max(estimate.n, math.ceil(estimate.n * (reach / room) ** 2 * (1.0 - 1e-12)))


def smallest_mcnemar_pvalue(n: int) -> float:
    """Return the least two-sided p that n pairs can reach: all of them flip, one way.

    An alarm whose share of alpha is below it cannot fire and is NOT_JUDGED.
    """
    return min(1.0, 2.0 * 0.5**n)


def detectable_one_way_flips(
    n: int, alpha: float, power: float = 0.8, floor: float = 0.0
) -> float | None:
    """Return the rate of flips, all in one direction, that exact McNemar finds with ``power``.

    alpha: two-sided. floor: share of flips that must be exceeded too. None: not even n flips
    will do. The m-th flip decides, m the least with 2^(1 - m) <= alpha and m / n > floor, so
    this is the rate at which Bin(n, rate) >= m has that power.
    """
    _check_share(alpha, "alpha")
    _check_share(power, "power")
    n_needed = max(1, math.ceil(1.0 - math.log2(alpha) - 1e-9), math.floor(n * floor + 1e-9) + 1)
    if n_needed > n:
        return None
    return float(dist.beta.ppf(power, n_needed, n - n_needed + 1))


def mcnemar_power(n: int, discordance: float, difference: float, alpha: float) -> float:
    """Return the exact power of the two-sided exact McNemar test.

    discordance: probability that a pair flips; difference: P(gain) - P(loss), at most that.
    """
    n_flips = np.arange(n + 1)
    gain = min(1.0, max(0.0, 0.5 * (1.0 + difference / discordance)))
    # rejected where the larger count passes isf: P(Bin(m, 1/2) > isf) <= alpha/2
    critical = dist.binom.isf(alpha / 2.0, n_flips, 0.5)
    rejected = dist.binom.sf(critical, n_flips, gain) + dist.binom.sf(critical, n_flips, 1 - gain)
    return float(np.dot(dist.binom.pmf(n_flips, n, discordance), rejected))


def detectable_binary_difference(
    n: int, discordance: float, alpha: float, power: float = 0.8
) -> float | None:
    """Return the smallest difference of paired proportions that exact McNemar finds.

    discordance: share of pairs that flip, both ways together. alpha: two-sided. None: not
    even a difference as large as the discordance has that power.
    """
    for value, name in ((discordance, "discordance"), (alpha, "alpha"), (power, "power")):
        _check_share(value, name)

    def missing(difference: float) -> float:
        return mcnemar_power(n, discordance, difference, alpha) - power

    if missing(discordance) < 0.0:
        return None
    return float(optimize.brentq(missing, 0.0, discordance, xtol=1e-6))


def detectable_mean_difference(
    n: int, std_dev: float, alpha: float, power: float = 0.8
) -> float | None:
    """Return the mean difference that a two-sided paired t test at ``alpha`` finds.

    (t(1 - alpha/2) + t(power)) s / sqrt(n) with n - 1 degrees of freedom, in std_dev's unit;
    a little above the noncentral t's answer. For clusters give n = G and the standard
    deviation of the cluster means. None: fewer than 2.
    """
    _check_share(alpha, "alpha")
    _check_share(power, "power")
    if n < _LEAST_N:
        return None
    quantiles = dist.t.isf(alpha / 2.0, n - 1) + dist.t.ppf(power, n - 1)
    return float(max(0.0, quantiles) * std_dev / math.sqrt(n))


def _check_share(value: float, name: str) -> None:
    if not 0.0 < value < 1.0:
        msg = f"{name} is {value}; it must lie between 0 and 1"
        raise ValueError(msg)
