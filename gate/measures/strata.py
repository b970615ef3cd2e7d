"""Class means of both arms, weighted by traffic: ratio and difference with stratified intervals.

A class is a stratum: what lies between classes is no noise. Conventions (sides, NaN, bad
input) are those of ``stats.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.bounds import bound_each_side
from gate.measures.stats import Limits, check_pair, keep_side, name_method, tail_probability
from gate.records import Estimate, Record

_ROUNDING = 1e-12  # spread below this share of the values is rounding, not evidence
LEAST = 2  # pairs of a class behind a variance


class Moments(Record, frozen=True, kw_only=True):
    """One class: mean per request in both arms, with the spread of its n pairs.

    share: of the traffic. baseline, candidate: in one unit, at least 0. var_*, cov: sample
    (co)variances with n - 1.
    """

    name: str
    share: float
    n: int
    baseline: float
    candidate: float
    var_baseline: float = 0.0
    var_candidate: float = 0.0
    cov: float = 0.0

    @property
    def alone(self) -> Moments:
        """The class as if it were all of the traffic."""
        return msgspec.structs.replace(self, share=1.0)

    @property
    def saving(self) -> float:
        """Baseline minus candidate, per request of the class."""
        return self.baseline - self.candidate


def read_moments(
    name: str, share: float, baseline: npt.ArrayLike, candidate: npt.ArrayLike
) -> Moments:
    """Return a class's moments. baseline, candidate: (n,), in one order, at least 0."""
    x, y = check_pair(baseline, candidate, f"class {name}")
    if min(x.min(), y.min()) < 0.0:
        msg = f"class {name} holds a value below 0"
        raise ValueError(msg)
    spread = np.cov(x, y) if x.size >= LEAST else np.zeros((2, 2))
    return Moments(
        name=name,
        share=share,
        n=x.size,
        baseline=float(x.mean()),
        candidate=float(y.mean()),
        var_baseline=float(spread[0, 0]),
        var_candidate=float(spread[1, 1]),
        cov=float(spread[0, 1]),
    )


def weigh(classes: Sequence[Moments]) -> list[Moments]:
    """Return the classes with shares that sum to 1. ValueError where none has traffic."""
    total = math.fsum(one.share for one in classes)
    if not total > 0.0 or any(one.share < 0.0 for one in classes):
        msg = "traffic shares must be at least 0 and not all 0"
        raise ValueError(msg)
    return [msgspec.structs.replace(one, share=one.share / total) for one in classes]


def weighted_means(classes: Sequence[Moments]) -> tuple[float, float]:
    """Return both arms' means per request of the whole traffic."""
    return (
        math.fsum(one.share * one.baseline for one in classes),
        math.fsum(one.share * one.candidate for one in classes),
    )


def stratified_ratio(classes: Sequence[Moments], confidence_level: float = 0.95) -> Estimate:
    """Return the weighted candidate mean over the weighted baseline mean, two-sided.

    Fieller's interval (1954) on the stratified (co)variances, t with Satterthwaite's degrees
    of freedom (1946). Unbounded where a class has one pair, where nothing varies, and where
    the baseline's mean is not clear of zero. Shares as :func:`weigh` leaves them.
    """
    x, y = weighted_means(classes)
    if not x > 0.0:
        msg = "a ratio needs a baseline above 0"
        raise ValueError(msg)
    ratio = y / x
    low, high = _ratio_limits(classes, ratio, tail_probability(confidence_level, "two-sided"))
    return _estimate(
        ratio, (low, high), classes, confidence_level, "ratio of stratified means, Fieller"
    )


def stratified_difference(classes: Sequence[Moments], confidence_level: float = 0.95) -> Estimate:
    """Return the weighted candidate mean minus the weighted baseline mean, two-sided.

    Student's t with Satterthwaite's degrees of freedom; unbounded as the ratio is.
    """
    x, y = weighted_means(classes)
    std_error, df = _spread(classes, 1.0)
    if not std_error > _ROUNDING * max(x, y):
        limits = (-math.inf, math.inf)
    else:
        half = float(dist.t.isf(tail_probability(confidence_level, "two-sided"), df)) * std_error
        limits = (y - x - half, y - x + half)
    name = "difference of stratified means, t"
    return _estimate(y - x, limits, classes, confidence_level, name)


def _estimate(
    statistic: float,
    limits: tuple[float, float],
    classes: Sequence[Moments],
    confidence_level: float,
    name: str,
) -> Estimate:
    low, high = min(limits[0], statistic), max(limits[1], statistic)
    bounds: Limits = keep_side(low, high, "two-sided")
    return Estimate(
        statistic=statistic,
        interval=bounds,
        confidence_level=confidence_level,
        n=sum(one.n for one in classes),
        method=name_method(name, "two-sided"),
    )


def _spread(classes: Sequence[Moments], ratio: float) -> tuple[float, float]:
    """Standard error of Y - ratio X and its degrees of freedom; (0, 0) where unknown."""
    carrying = [one for one in classes if one.share > 0.0]
    if any(one.n < LEAST for one in carrying):
        return 0.0, 0.0
    parts = [
        one.share**2
        * max(0.0, one.var_candidate - 2 * ratio * one.cov + ratio**2 * one.var_baseline)
        / one.n
        for one in carrying
    ]
    total = math.fsum(parts)
    if not total > 0.0:
        return 0.0, 0.0
    df = total**2 / math.fsum(p**2 / (c.n - 1) for p, c in zip(parts, carrying, strict=True))
    return math.sqrt(total), df


def _ratio_limits(classes: Sequence[Moments], ratio: float, tail: float) -> tuple[float, float]:
    x, y = weighted_means(classes)
    std_error, df = _spread(classes, ratio)
    if not std_error > _ROUNDING * max(x, y):
        return -math.inf, math.inf
    t2 = float(dist.t.isf(tail, df)) ** 2
    weights = [(one.share**2 / one.n, one) for one in classes if one.share > 0.0]
    a = x * x - t2 * math.fsum(w * one.var_baseline for w, one in weights)
    b = x * y - t2 * math.fsum(w * one.cov for w, one in weights)
    c = y * y - t2 * math.fsum(w * one.var_candidate for w, one in weights)
    if a <= 0.0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return max(0.0, (b - root) / a), (b + root) / a


def estimate_ratio(moments: Sequence[Moments], confidence_level: float) -> Estimate:
    """Return the weighted ratio with a bound of ``confidence_level`` on each side."""
    weighed = weigh(moments)
    return bound_each_side(lambda level: stratified_ratio(weighed, level), confidence_level)


def estimate_difference(moments: Sequence[Moments], confidence_level: float) -> Estimate:
    """Return the weighted difference with a bound of ``confidence_level`` on each side."""
    weighed = weigh(moments)
    return bound_each_side(lambda level: stratified_difference(weighed, level), confidence_level)


def warn_of_single(moments: Sequence[Moments]) -> str:
    """Name the classes whose one pair leaves the interval unbounded."""
    single = [one.name for one in moments if one.n == 1 and one.share > 0.0]
    return f"one pair only in {', '.join(single)}: no interval" if single else ""
