"""Paired means and ratios, with intervals that hold their level.

Conventions (sides, NaN, bad input) are those of ``stats.py``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.stats import (
    FloatArray,
    Side,
    binomial_limits,
    check_pair,
    check_vector,
    flip_limits,
    keep_side,
    name_method,
    sum_by_cluster,
    tail_probability,
)
from gate.records import Estimate

MIN_CLUSTERS = 8  # below, a cluster-robust interval does not hold its level
SPARSE = 20  # with fewer nonzero differences (and most of them zero) a t interval undercovers
_ROUNDING = 1e-12  # spread below this share of the values is rounding, not evidence


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
    return _estimate_mean(
        values,
        np.ones(values.size),
        confidence_level,
        side,
        score_range=score_range,
        name="paired t",
    )


def clustered_mean_difference(
    diffs: npt.ArrayLike,
    clusters: npt.ArrayLike,
    confidence_level: float = 0.95,
    side: Side = "two-sided",
    score_range: float | None = None,
) -> Estimate:
    """Return the mean of paired differences with a cluster-robust interval.

    diffs, clusters: (n,), a key for each difference. Clusters of one size: CR1 with t(G-1).
    Uneven ones, where CR1 undercovers: CR3 (jackknife) with t(1 / sum h^2 - 1), h the
    clusters' shares of n, which is the same where they are even. Fewer than 8 clusters:
    unbounded and without p-value, and ``method`` says why. The other rules are those of
    ``paired_mean_difference`` with clusters for pairs. Cameron and Miller (2015).
    """
    values = check_vector(diffs, "diffs")
    _check_range(values, score_range)
    sums, sizes = (sum_by_cluster(v, clusters) for v in (values, np.ones(values.size)))
    if sums.size < MIN_CLUSTERS:
        name = f"cluster-robust needs {MIN_CLUSTERS} clusters, has {sums.size}"
        return _unbounded(values, confidence_level, side, name)
    name = f"{'CR3' if np.ptp(sizes) else 'CR1'} over {sums.size} clusters"
    name += f" with t({effective_df(sizes):.3g})"
    return _estimate_mean(sums, sizes, confidence_level, side, score_range=score_range, name=name)


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
    *,
    score_range: float | None,
    name: str,
) -> Estimate:
    """Mean of sum(sums) / sum(sizes) over G units (pairs or clusters), sums and sizes (G,)."""
    mean = float(sums.sum() / sizes.sum())
    std_error = float(cluster_std_error(sums - mean * sizes, sizes))
    tail = tail_probability(confidence_level, side)
    if std_error <= _ROUNDING * float(np.abs(sums).max()):
        limits = _limits_without_spread(mean, sizes, score_range, tail)
        name, pvalue = f"{name}; no spread, binomial rule", _sign_pvalue(mean, sums.size)
    else:
        df = effective_df(sizes)
        half = float(dist.t.isf(tail, df)) * std_error
        limits = widen_when_sparse((mean - half, mean + half), sums / sizes.mean(), tail)
        pvalue = float(2.0 * dist.t.sf(abs(mean) / std_error, df))
    return Estimate(
        statistic=mean,
        interval=keep_side(min(limits[0], mean), max(limits[1], mean), side),
        confidence_level=confidence_level,
        n=int(sizes.sum()),
        method=name_method(name, side),
        pvalue=pvalue,
    )


def cluster_std_error(residuals: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the CR3 standard error of sum(sums) / n. residuals: (G, ...), sizes: (G,).

    sqrt((G-1)/G sum (r_g / (1 - h_g))^2) / n; one size: CR1; one each: s / sqrt(n).
    """
    g, n = sizes.size, sizes.sum()
    spread = residuals.T / (1.0 - sizes / n)
    return np.asarray(np.sqrt((g - 1) / g * (spread**2).sum(axis=-1)) / n)


def effective_df(sizes: FloatArray) -> float:
    """Return 1 / sum h^2 - 1, h the shares of n: G - 1 for clusters of one size."""
    return max(0.1, float(sizes.sum() ** 2 / (sizes**2).sum()) - 1.0)


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


def widen_when_sparse(
    limits: tuple[float, float], units: FloatArray, tail: float
) -> tuple[float, float]:
    """Return the hull with limits for flips of the largest size, where most units are zero."""
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
        interval=keep_side(min(low, ratio), max(high, ratio), side),
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
    return max(0.0, (b - root) / a), (b + root) / a


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
