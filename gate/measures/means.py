"""Paired means, ratios and percentiles, with intervals that hold their level.

Conventions (sides, NaN, bad input) are those of ``stats.py``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.stats import (
    FloatArray,
    Limits,
    Side,
    binomial_limits,
    check_pair,
    check_vector,
    cluster_labels,
    flip_limits,
    keep_side,
    name_method,
    tail_probability,
)
from gate.records import Estimate

MIN_CLUSTERS = 8  # below, CR1 with t(G - 1) does not hold its level
SPARSE = 20  # with fewer nonzero differences (and most of them zero) a t interval undercovers
_ROUNDING = 1e-12  # spread below this share of the values is rounding, not evidence


# --------------------------------------------------------------- paired means


def paired_mean_difference(
    diffs: npt.ArrayLike,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
    score_range: float | None = None,
) -> Estimate:
    """Return the mean of paired differences with Student's t interval.

    diffs: (n,), candidate minus baseline, any unit. score_range: the largest size a
    difference can have (1 for scores in [0, 1]); None where scores have no bound.
    ``pvalue`` is two-sided whatever the side. By rule:

    - one pair: unbounded, no p-value;
    - no spread (all zero, say): the share of pairs that could differ is bounded binomially
      and multiplied by the score range; unbounded without one. p: sign test, 1 at zero;
    - fewer than 20 nonzero and most of them zero: at least as wide as the interval
      for flips of the largest size seen.
    """
    values = check_vector(diffs, "diffs")
    _check_range(values, score_range)
    if values.size == 1:
        return _unbounded(values, confidence_level, side, "one pair, nothing to judge spread from")
    sizes = np.ones(values.size)
    return _estimate_mean(values, sizes, confidence_level, side, score_range, "paired t")


def clustered_mean_difference(
    diffs: npt.ArrayLike,
    clusters: npt.ArrayLike,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
    score_range: float | None = None,
) -> Estimate:
    """Return the mean of paired differences with a cluster-robust interval, CR1 with t(G-1).

    diffs, clusters: (n,), a key for each difference. Fewer than 8 clusters: unbounded and
    without p-value, and ``method`` says why. The other rules are those of
    ``paired_mean_difference`` with clusters in the place of pairs. Cameron and Miller (2015).
    """
    values = check_vector(diffs, "diffs")
    _check_range(values, score_range)
    labels = cluster_labels(clusters, values.size)
    sums, sizes = np.bincount(labels, weights=values), np.bincount(labels).astype(np.float64)
    if sums.size < MIN_CLUSTERS:
        name = f"CR1 needs {MIN_CLUSTERS} clusters, has {sums.size}"
        return _unbounded(values, confidence_level, side, name)
    name = f"CR1 over {sums.size} clusters with t({sums.size - 1})"
    return _estimate_mean(sums, sizes, confidence_level, side, score_range, name)


def _check_range(values: FloatArray, score_range: float | None) -> None:
    largest = float(np.abs(values).max())
    if score_range is not None and largest > score_range:
        msg = f"a difference of size {largest} exceeds score_range {score_range}"
        raise ValueError(msg)


def _unbounded(values: FloatArray, confidence_level: float, side: Side, why: str) -> Estimate:
    tail_probability(confidence_level, side)
    return Estimate(
        statistic=float(values.mean()),
        interval=(None, None),
        confidence_level=confidence_level,
        n=values.size,
        method=name_method(why, side),
    )


def _estimate_mean(
    sums: FloatArray,
    sizes: FloatArray,
    confidence_level: float,
    side: Side,
    score_range: float | None,
    name: str,
) -> Estimate:
    """Mean of sum(sums) / sum(sizes) over G units (pairs or clusters), sums and sizes (G,)."""
    mean = float(sums.sum() / sizes.sum())
    std_error = _cluster_std_error(sums - mean * sizes, sizes)
    tail = tail_probability(confidence_level, side)
    if std_error <= _ROUNDING * float(np.abs(sums).max()):
        limits = _limits_without_spread(mean, sizes, score_range, tail)
        name, pvalue = f"{name}; no spread, binomial rule", _sign_pvalue(mean, sums.size)
    else:
        limits = _t_limits(mean, std_error, sums.size, tail)
        limits = _widen_when_sparse(limits, sums / sizes.mean(), tail)
        pvalue = float(2.0 * dist.t.sf(abs(mean) / std_error, sums.size - 1))
    return Estimate(
        statistic=mean,
        interval=keep_side(min(limits[0], mean), max(limits[1], mean), side),
        confidence_level=confidence_level,
        n=int(sizes.sum()),
        method=name_method(name, side),
        pvalue=pvalue,
    )


def _cluster_std_error(residuals: FloatArray, sizes: FloatArray) -> float:
    """CR1: sqrt(G/(G-1) sum r_g^2) / n; singletons give the usual s / sqrt(n)."""
    g = residuals.size
    return float(np.sqrt(g / (g - 1) * (residuals**2).sum()) / sizes.sum())


def _t_limits(mean: float, std_error: float, n_units: int, tail: float) -> tuple[float, float]:
    half = float(dist.t.isf(tail, n_units - 1)) * std_error
    return mean - half, mean + half


def _limits_without_spread(
    mean: float, sizes: FloatArray, score_range: float | None, tail: float
) -> tuple[float, float]:
    """0 of G units differ from the mean: bound their share, let them lie at the range's ends."""
    if score_range is None:
        return -math.inf, math.inf
    share = binomial_limits(0, sizes.size, tail)[1] * float(sizes.max() / sizes.mean())
    share = min(1.0, share)
    return mean - share * (score_range + mean), mean + share * (score_range - mean)


def _sign_pvalue(mean: float, n_units: int) -> float:
    return 1.0 if mean == 0.0 else min(1.0, 2.0 * 0.5**n_units)


def _widen_when_sparse(
    limits: tuple[float, float], units: FloatArray, tail: float
) -> tuple[float, float]:
    """Hull with the limits for flips as large as the largest unit, where most units are zero."""
    n_up, n_down = int((units > 0.0).sum()), int((units < 0.0).sum())
    if n_up + n_down >= SPARSE or 2 * (n_up + n_down) >= units.size:
        return limits
    low, high = flip_limits(n_up, n_down, units.size, tail)
    largest = float(np.abs(units).max())
    return min(limits[0], largest * low), max(limits[1], largest * high)


# --------------------------------------------------------------------- ratios


def ratio_of_means(
    baseline: npt.ArrayLike,
    candidate: npt.ArrayLike,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
) -> Estimate:
    """Return the candidate's mean over the baseline's with Fieller's paired interval (1954).

    baseline, candidate: (n,), not negative, in one unit and one order. ``pvalue``: paired t
    on the differences, two-sided (None where they have no spread). Unbounded with one pair,
    where every pair has the same ratio, and where the baseline's mean is not clear of zero.
    """
    x, y = check_pair(baseline, candidate, "ratio")
    if min(x.min(), y.min()) < 0.0 or x.sum() <= 0.0:
        msg = "a ratio takes values of at least 0 and a baseline that is not all 0"
        raise ValueError(msg)
    ratio = float(y.mean() / x.mean())
    low, high = _fieller_limits(x, y, ratio, tail_probability(confidence_level, side))
    return Estimate(
        statistic=ratio,
        interval=keep_side(max(0.0, min(low, ratio)), max(high, ratio), side),
        confidence_level=confidence_level,
        n=x.size,
        method=name_method("ratio of means, Fieller", side),
        pvalue=_t_pvalue(y - x),
    )


def _fieller_limits(x: FloatArray, y: FloatArray, ratio: float, tail: float) -> tuple[float, float]:
    """All r for which a t test does not reject mean(y - r x) = 0."""
    if x.size == 1 or np.ptp(y - ratio * x) <= _ROUNDING * float(max(x.max(), y.max())):
        return -math.inf, math.inf
    scale = float(dist.t.isf(tail, x.size - 1)) ** 2 / x.size
    cov = np.cov(x, y)
    a = float(x.mean() ** 2 - scale * cov[0, 0])
    b = float(x.mean() * y.mean() - scale * cov[0, 1])
    c = float(y.mean() ** 2 - scale * cov[1, 1])
    if a <= 0.0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a


def _t_pvalue(diffs: FloatArray) -> float | None:
    if diffs.size == 1 or np.ptp(diffs) <= _ROUNDING * float(np.abs(diffs).max()):
        return None
    return paired_mean_difference(diffs).pvalue


def geometric_mean_ratio(
    baseline: npt.ArrayLike,
    candidate: npt.ArrayLike,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
) -> Estimate:
    """Return the geometric mean of the per-pair ratios, t interval on their logarithms.

    baseline, candidate: (n,), positive, in one unit and one order. It weighs every pair
    alike, where ``ratio_of_means`` weighs long requests more.
    """
    x, y = check_pair(baseline, candidate, "ratio")
    if min(x.min(), y.min()) <= 0.0:
        msg = "a geometric mean of ratios takes positive values"
        raise ValueError(msg)
    logs = paired_mean_difference(np.log(y / x), confidence_level, side)
    low, high = (None if limit is None else math.exp(limit) for limit in logs.interval)
    return Estimate(
        statistic=math.exp(logs.statistic),
        interval=(low, high),
        confidence_level=confidence_level,
        n=logs.n,
        method=name_method("geometric mean of ratios, t on logs", side),
        pvalue=logs.pvalue,
    )


# ---------------------------------------------------------------- percentiles


def percentile_with_interval(
    values: npt.ArrayLike,
    q: float,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
) -> Estimate:
    """Return the q-quantile (an observed value) with its order-statistic interval.

    values: (n,), q in (0, 1). A limit that no order statistic can give is None: an upper
    95% bound of the 99th percentile needs n >= 299 (one-sided; two-sided 368). Distribution
    free; David and Nagaraja, Order Statistics, 7.1.
    """
    ordered = np.sort(check_vector(values, "values"))
    if not 0.0 < q < 1.0:
        msg = f"q is {q}; it must lie between 0 and 1"
        raise ValueError(msg)
    n, rank = ordered.size, math.ceil(ordered.size * (q - _ROUNDING))
    rank_low, rank_high = _quantile_ranks(n, q, tail_probability(confidence_level, side))
    rank_low, rank_high = min(rank_low, rank), max(rank_high, rank)
    limits: Limits = (
        float(ordered[rank_low - 1]) if rank_low >= 1 and side != "upper" else None,
        float(ordered[rank_high - 1]) if rank_high <= n and side != "lower" else None,
    )
    return Estimate(
        statistic=float(ordered[rank - 1]),
        interval=limits,
        confidence_level=confidence_level,
        n=n,
        method=name_method("order statistics", side),
    )


def _quantile_ranks(n: int, q: float, tail: float) -> tuple[int, int]:
    """Ranks from 1 whose values bound the quantile; 0 and n + 1 stand for no bound.

    The largest l with P(Bin(n, q) <= l - 1) <= tail, the smallest u with
    P(Bin(n, q) >= u) <= tail.
    """
    counts = np.arange(n + 1)
    rank_low = int((dist.binom.cdf(counts, n, q) <= tail).sum())
    rank_high = int((dist.binom.sf(counts, n, q) > tail).sum()) + 1
    return rank_low, rank_high
